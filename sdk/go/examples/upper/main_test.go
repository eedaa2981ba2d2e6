package main

import (
	"strings"
	"testing"

	"github.com/weir-stream/weir/sdk/go/weirtest"
)

func TestOnlyASCIILettersBecomeCapitals(t *testing.T) {
	harness := weirtest.New(t, plugin, "{}")
	harness.Process(0, weirtest.KV("k", "azAZ09 é\x00").At(1), weirtest.Tombstone("gone"), weirtest.V("").WithHeader("h", "x"))
	harness.Want(0, weirtest.KV("k", "AZAZ09 é\x00").At(1), weirtest.Tombstone("gone"), weirtest.V("").WithHeader("h", "x"))
}

func TestAValueOfMoreThan80BytesIsRejected(t *testing.T) {
	harness := weirtest.New(t, plugin, "{}")
	harness.Process(0, weirtest.KV("k", strings.Repeat("a", 80)), weirtest.KV("k", strings.Repeat("a", 81)).At(2), weirtest.Tombstone("gone"))
	harness.Want(0, weirtest.KV("k", strings.Repeat("A", 80)), weirtest.Tombstone("gone"))
	harness.WantRejected("the value has 81 bytes, more than 80")
}
