/*@about@*/
#ifndef CONV_H
#define CONV_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st; /* what cudaStream_t and CUstream point to */

/*@codes@*/

/* A forward convolution in two dimensions. x is n x c x h x w, the weight k x (c / groups) x r x s. */
typedef struct conv_sizes {
    int64_t n, c, h, w, k, r, s;
    int64_t pad_h, pad_w, stride_h, stride_w, dilation_h, dilation_w; /* a dilation of 1 is dense */
    int64_t groups;
} conv_sizes;

/* Convolutions of any sizes on one device. Each is planned at its first call and then kept.

   The table in the C file has the engine or algorithm for its sizes. For other sizes cuDNN's heuristics A, B and
   FALLBACK are tried in this order. The first engine runs whose plan can be finalized, whose arithmetic is allowed
   and whose workspace is within the limit. The heuristics also replace a row of the table that cuDNN refuses, that
   needs more workspace, or that has an engine of another version of cuDNN; conv_choice says which one runs.

   Threads: any number of threads may call every function except conv_create, conv_forget and conv_destroy at the
   same time. Calls for the same sizes enqueue one after another, some microseconds each, and so do calls that share
   a stream and its workspace. Other calls enqueue concurrently, up to `at_once` of conv_create.

   Plans are kept without a limit on their number, until conv_forget or conv_destroy. */
typedef struct conv_cache conv_cache;

/* Create an empty cache for this thread's current device, which must also be current in every other call. Plans that
   need more than `workspace_limit` bytes are not used. `at_once` calls can enqueue at the same time: their cuDNN
   handles are created here, so that no run creates one. */
int conv_create(conv_cache **cache, size_t workspace_limit, int at_once);

/* Let later runs on `stream` use this memory on the device, aligned to 256 bytes. The caller owns it and must keep it
   until everything enqueued with it has run. Each stream has its own workspace, since concurrent runs must not share
   one. cudaStreamPerThread is one name for many streams, and is refused. */
int conv_set_workspace(conv_cache *cache, struct CUstream_st *stream, void *pointer, size_t bytes);

/* Make the workspace of `stream` at least this large, with memory that the cache owns. If it is smaller, this call
   waits for the stream and allocates; no other function does. A CUDA graph that captured a run with the old
   workspace becomes invalid. */
int conv_grow_workspace(conv_cache *cache, struct CUstream_st *stream, size_t bytes);

/* The workspace that a run with these sizes needs. Plans new sizes, so that the first run need not. */
int conv_workspace_bytes(conv_cache *cache, const conv_sizes *sizes, size_t *bytes);

/* Write convwright's name of the engine or algorithm for these sizes, and whether it is by the table or by the
   heuristic, into the `bytes` bytes of `text`. Plans new sizes. */
int conv_choice(conv_cache *cache, const conv_sizes *sizes, char *text, size_t bytes);

/* Enqueue a convolution on a stream (a cudaStream_t or CUstream; NULL is the default stream), and return.

   All pointers are addresses on the device, aligned to 16 bytes and dense, as described above; `bias` and `residual`
   are NULL if the list above has none.

   The first run with new sizes plans them, which takes milliseconds, loads kernels and allocates on the host;
   conv_workspace_bytes can do that earlier. @zeros@
   Later runs with the same sizes print nothing, do not wait for the device, and allocate nothing on it.
   @host@

   If the stream's workspace is too small, nothing runs and CONV_NO_WORKSPACE is returned.

   A CUDA graph can capture it, after one run outside a capture. The cache and its plans must live as long as the
   graph. */
int conv_run(conv_cache *cache, int64_t n, int64_t c, int64_t h, int64_t w, int64_t k, int64_t r, int64_t s,
             int64_t pad_h, int64_t pad_w, int64_t stride_h, int64_t stride_w, int64_t dilation_h, int64_t dilation_w,
             int64_t groups, const void *x, const void *weight, const void *bias, const void *residual, void *y,
             struct CUstream_st *stream);

/* Destroy all plans. No call may be in progress and all runs must have finished. Workspaces stay. */
void conv_forget(conv_cache *cache);

/* Destroy the cache. No call may be in progress and all runs must have finished. Does nothing for NULL. */
void conv_destroy(conv_cache *cache);

#ifdef __cplusplus
}
#endif

#endif
