/*@about@*/
#ifndef CONV_H
#define CONV_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st; /* what cudaStream_t and CUstream point to */

/*@codes@*/

/* This one convolution, made ready for one device.

   Threads: two objects know nothing of each other. One object serves one thread at a time, on any streams in turn; two
   threads that want to enqueue at the same time have an object each. Calls that may overlap on the device need a
   workspace each. Nothing here takes a lock. */
typedef struct conv_plan conv_plan;

/* Make it ready for the device that is current in this thread, which has to be current in every other call as well.
   This loads kernels, allocates on the host and, by cuDNN's handle, on the device.
   @zeros@ */
int conv_create(conv_plan **plan);

/* How much memory on the device a run needs besides its operands; 0 says that its `workspace` may be NULL. */
size_t conv_workspace_bytes(const conv_plan *plan);

/* Enqueue the convolution on a stream (a cudaStream_t or CUstream; NULL is the default stream), and return.

   All pointers are addresses on the device, laid out as is said above; `workspace` is aligned to 256 bytes. `bias` and
   `residual` are NULL where the list above has none.

   Nothing is printed, nothing waits for the device, and nothing is allocated on it.
   @host@

   A CUDA graph can capture it, after one run outside of a capture; the object has to live as long as the graph. */
int conv_run(conv_plan *plan, const void *first, const void *second, const void *bias, const void *residual, void *out,
             void *workspace, struct CUstream_st *stream);

/* Give everything back, when all runs have come to their end; NULL is nothing. */
void conv_destroy(conv_plan *plan);

#ifdef __cplusplus
}
#endif

#endif
