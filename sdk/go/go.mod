module github.com/weir-stream/weir/sdk/go

go 1.27
