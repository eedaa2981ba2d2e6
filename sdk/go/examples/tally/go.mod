module tally

go 1.27

require github.com/weir-stream/weir/sdk/go v0.0.0

replace github.com/weir-stream/weir/sdk/go => ../..
