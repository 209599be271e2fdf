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

/* One convolution in two dimensions, forward. x is n x c x h x w, the weight k x (c / groups) x r x s. */
typedef struct conv_sizes {
    int64_t n, c, h, w, k, r, s;
    int64_t pad_h, pad_w, stride_h, stride_w, dilation_h, dilation_w; /* a dilation of 1 is dense */
    int64_t groups;
} conv_sizes;

/* Convolutions of any sizes on one device, each planned when it is met for the first time and then kept.

   Which engine or algorithm serves sizes is told by the table in the C file. For other sizes cuDNN's heuristics A, B
   and FALLBACK are walked in their order, and the first engine serves whose plan can be finalized, whose arithmetic
   is allowed and which needs no more workspace than the limit. It is the same for a row of the table that cuDNN
   refuses here, that needs more workspace, or that names an engine of another version of cuDNN; conv_choice tells.

   Threads: every function but conv_create, conv_forget and conv_destroy may be called by any number of threads at
   the same time. Calls for the same sizes take turns while they enqueue, some microseconds each, and so do calls
   that share a stream and its workspace; others go side by side, as many as conv_create was told.

   Plans are kept without bound, until conv_forget or conv_destroy. */
typedef struct conv_cache conv_cache;

/* Make an empty cache for the device that is current in this thread, which has to be current in every other call as
   well. No plan that needs more than `workspace_limit` bytes will serve. `at_once` calls can enqueue at the same
   time: cuDNN's handles are made here, so that no run makes one. */
int conv_create(conv_cache **cache, size_t workspace_limit, int at_once);

/* Let runs on `stream` use this memory on the device, aligned to 256 bytes, from now on; it stays the caller's, and
   has to stay until what was enqueued with it has run. Each stream has its own, since what runs at the same time
   must not share it. cudaStreamPerThread is one name for many streams, and is refused. */
int conv_set_workspace(conv_cache *cache, struct CUstream_st *stream, void *pointer, size_t bytes);

/* Make the workspace of `stream` at least so large, by memory that belongs to the cache. Where it is not so large
   yet this waits for the stream and allocates, which nothing else here does. A CUDA graph that captured a run with
   the old one is not valid any more. */
int conv_grow_workspace(conv_cache *cache, struct CUstream_st *stream, size_t bytes);

/* How much workspace a run with these sizes needs. It plans them if they were not met before, so that the first run
   need not. */
int conv_workspace_bytes(conv_cache *cache, const conv_sizes *sizes, size_t *bytes);

/* What serves these sizes, as convwright calls it, and whether the table or the heuristic said so, written into
   `text` of so many bytes. It plans them if they were not met before. */
int conv_choice(conv_cache *cache, const conv_sizes *sizes, char *text, size_t bytes);

/* Enqueue a convolution on a stream (a cudaStream_t or CUstream; NULL is the default stream), and return.

   All pointers are addresses on the device, aligned to 16 bytes and dense, as is said above; `bias` and `residual`
   are NULL where the list above has none.

   Sizes that are met for the first time are planned, which takes milliseconds, loads kernels and allocates on the
   host; conv_workspace_bytes does that ahead. @zeros@
   For sizes that were met before nothing is printed, nothing waits for the device, and nothing is allocated on it.
   @host@

   Where the workspace of the stream is smaller than what is needed, nothing runs and CONV_NO_WORKSPACE is returned.

   A CUDA graph can capture it, after one run outside of a capture; the cache, with its plans, has to live as long as
   the graph. */
int conv_run(conv_cache *cache, int64_t n, int64_t c, int64_t h, int64_t w, int64_t k, int64_t r, int64_t s,
             int64_t pad_h, int64_t pad_w, int64_t stride_h, int64_t stride_w, int64_t dilation_h, int64_t dilation_w,
             int64_t groups, const void *x, const void *weight, const void *bias, const void *residual, void *y,
             struct CUstream_st *stream);

/* Drop all plans, when no call is going on and all runs have come to their end. Workspaces stay. */
void conv_forget(conv_cache *cache);

/* Give everything back, when no call is going on and all runs have come to their end; NULL is nothing. */
void conv_destroy(conv_cache *cache);

#ifdef __cplusplus
}
#endif

#endif
