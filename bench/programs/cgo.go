// Goroutines that allocate, fill, pass on and free C memory through cgo, each call on whichever thread runs the goroutine.
//
//	cgo GOROUTINES STEPS
package main

/*
#include <stdlib.h>
#include <string.h>

typedef struct node { struct node *next; unsigned size; unsigned char bytes[]; } node;

static node *push(node *list, unsigned size, unsigned char value) {
  node *made = malloc(sizeof *made + size);
  if (!made) abort();
  made->next = list;
  made->size = size;
  memset(made->bytes, value, size);
  return made;
}

static unsigned long drop(node *list) {
  unsigned long sum = 0;
  while (list) {
    node *next = list->next;
    for (unsigned i = 0; i < list->size; i++) sum += list->bytes[i];
    free(list);
    list = next;
  }
  return sum;
}
*/
import "C"

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"unsafe"
)

const listLength = 20

// list is C memory that another goroutine frees, and the sum of its bytes.
type list struct {
	head *C.node
	sum  uint64
}

func produce(seed uint32, steps int, lists chan<- list) {
	for step := 0; step < steps; step++ {
		made := list{}
		for i := 0; i < listLength; i++ {
			seed = seed*1664525 + 1013904223
			size, value := seed>>16%1000+1, byte(seed>>8)
			made.head = C.push(made.head, C.uint(size), C.uchar(value))
			made.sum += uint64(size) * uint64(value)
		}
		text := fmt.Sprintf("step %d of %d", step, seed)
		copied := C.CString(text)
		if C.GoString(copied) != text {
			panic("a C string differs")
		}
		C.free(unsafe.Pointer(copied))
		lists <- made
	}
}

func consume(lists <-chan list) (sum uint64) {
	for one := range lists {
		found := uint64(C.drop(one.head))
		if found != one.sum {
			panic("a list differs")
		}
		sum += found
	}
	return sum
}

func main() {
	goroutines, _ := strconv.Atoi(os.Args[1])
	steps, _ := strconv.Atoi(os.Args[2])
	lists := make(chan list, 64)
	var producers, consumers sync.WaitGroup
	sums := make([]uint64, goroutines)
	for i := 0; i < goroutines; i++ {
		producers.Add(1)
		consumers.Add(1)
		go func(i int) { defer producers.Done(); produce(uint32(i+1), steps, lists) }(i)
		go func(i int) { defer consumers.Done(); sums[i] = consume(lists) }(i)
	}
	producers.Wait()
	close(lists)
	consumers.Wait()
	total := uint64(0)
	for _, sum := range sums {
		total += sum
	}
	fmt.Println("sum", total)
}
