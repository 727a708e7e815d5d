// Holds 64 MiB of Go's own memory, or with "c" of C's.
package main

// #include <stdlib.h>
// #include <string.h>
// static void *hold(size_t size) { void *block = malloc(size); memset(block, 1, size); return block; }
import "C"

import (
	"fmt"
	"os"
	"unsafe"
)

var kept [][]byte
var outside []unsafe.Pointer

func main() {
	for i := 0; i < 64; i++ {
		if os.Args[1] == "c" {
			outside = append(outside, C.hold(1<<20))
			continue
		}
		array := make([]byte, 1<<20)
		for j := range array {
			array[j] = 1
		}
		kept = append(kept, array)
	}
	fmt.Println("ready")
	os.Stdin.Read(make([]byte, 1))
}
