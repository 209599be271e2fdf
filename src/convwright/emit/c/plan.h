/*@about@*/
#ifndef CONV_H
#define CONV_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st; /* what cudaStream_t and CUstream point to */

/*@codes@*/

/* This convolution, ready to run on one device.

   Threads: objects are independent. One thread at a time may use an object, on any streams in turn. Threads that
   enqueue at the same time need an object each. Calls that may overlap on the device need a workspace each. No
   function takes a lock. */
typedef struct conv_plan conv_plan;

/* Create the object for this thread's current device, which must also be current in every other call.
   This loads kernels, allocates on the host and, for cuDNN's handle, on the device.
   @zeros@ */
int conv_create(conv_plan **plan);

/* The memory on the device that a run needs besides its operands; with 0, its `workspace` may be NULL. */
size_t conv_workspace_bytes(const conv_plan *plan);

/* Enqueue the convolution on a stream (a cudaStream_t or CUstream; NULL is the default stream), and return.

   All pointers are addresses on the device, laid out as described above; `workspace` is aligned to 256 bytes. `bias`
   and `residual` are NULL if the list above has none.

   A run prints nothing, does not wait for the device, and allocates nothing on it.
   @host@

   A CUDA graph can capture it, after one run outside a capture. The object must live as long as the graph. */
int conv_run(conv_plan *plan, const void *first, const void *second, const void *bias, const void *residual, void *out,
             void *workspace, struct CUstream_st *stream);

/* Destroy the object. All runs must have finished. Does nothing for NULL. */
void conv_destroy(conv_plan *plan);

#ifdef __cplusplus
}
#endif

#endif
