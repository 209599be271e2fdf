/* ---- Runs ---- */

static int enqueue(conv_cache *cache, struct entry *entry, const void *const *operands, cudaStream_t stream)
{
    struct lane *lane = take_lane(cache, stream);
    int code = use_stream(lane, stream);
    if (code == CONV_OK)
        code = entry->classic ? classic_run(&entry->algorithm, lane->handle, operands)
                              : graph_run(&entry->graph, lane->handle, operands);
    leave_lane(cache, lane);
    return code;
}

static int enqueue_with_workspace(conv_cache *cache, struct entry *entry, const void **operands, cudaStream_t stream)
{
    struct buffer *buffer = find_buffer(cache, stream);
    int code = CONV_NO_WORKSPACE;
    if (buffer == NULL)
        return code;
    pthread_mutex_lock(&buffer->lock);
    if (buffer->bytes >= entry->workspace_bytes) {
        operands[WORKSPACE] = buffer->pointer;
        code = enqueue(cache, entry, operands, stream);
    }
    pthread_mutex_unlock(&buffer->lock);
    return code;
}

static int run_entry(conv_cache *cache, struct entry *entry, const void **operands, cudaStream_t stream)
{
    TRY(check_operands(&entry->problem, operands));
    if (ADDS_ZEROS)
        operands[BIAS] = entry->zeros;
    if (entry->workspace_bytes > 0)
        return enqueue_with_workspace(cache, entry, operands, stream);
    return enqueue(cache, entry, operands, stream);
}

int conv_run(conv_cache *cache, int64_t n, int64_t c, int64_t h, int64_t w, int64_t k, int64_t r, int64_t s,
             int64_t pad_h, int64_t pad_w, int64_t stride_h, int64_t stride_w, int64_t dilation_h, int64_t dilation_w,
             int64_t groups, const void *x, const void *weight, const void *bias, const void *residual, void *y,
             struct CUstream_st *stream)
{
    const conv_sizes sizes = {n,        c,        h,        w,          k,          r,     s, pad_h,
                              pad_w,    stride_h, stride_w, dilation_h, dilation_w, groups};
    const void *operands[PLACES] = {x, weight, bias, residual, y, NULL};
    struct entry *entry;
    int code;
    TRY(enter(cache, &sizes, &entry));
    code = run_entry(cache, entry, operands, stream);
    pthread_mutex_unlock(&entry->lock);
    return code;
}

/* ---- Workspaces ---- */

static int change_workspace(conv_cache *cache, cudaStream_t stream, struct buffer **changed)
{
    if (cache == NULL || stream == cudaStreamPerThread)
        return CONV_BAD_ARGUMENT;
    *changed = find_or_add_buffer(cache, stream);
    if (*changed == NULL)
        return CONV_NO_MEMORY;
    pthread_mutex_lock(&(*changed)->lock);
    return CONV_OK;
}

int conv_set_workspace(conv_cache *cache, struct CUstream_st *stream, void *pointer, size_t bytes)
{
    struct buffer *buffer;
    TRY(check_pointer(pointer, bytes > 0, 256));
    TRY(change_workspace(cache, stream, &buffer));
    buffer->pointer = pointer;
    buffer->bytes = bytes;
    pthread_mutex_unlock(&buffer->lock);
    return CONV_OK;
}

static int grow(struct buffer *buffer, size_t bytes)
{
    void *larger = NULL;
    if (buffer->bytes >= bytes)
        return CONV_OK;
    CUDA(cudaStreamSynchronize, (buffer->stream)); /* enqueued runs may still use the old one */
    CUDA(cudaMalloc, (&larger, bytes));
    if (buffer->own != NULL)
        (void)cudaFree(buffer->own);
    buffer->own = buffer->pointer = larger;
    buffer->bytes = bytes;
    return CONV_OK;
}

int conv_grow_workspace(conv_cache *cache, struct CUstream_st *stream, size_t bytes)
{
    struct buffer *buffer;
    int code;
    TRY(change_workspace(cache, stream, &buffer));
    code = grow(buffer, bytes);
    pthread_mutex_unlock(&buffer->lock);
    return code;
}

/* ---- The cache as a whole ---- */

static int make_lanes(conv_cache *cache, int count)
{
    cache->lanes = (struct lane *)calloc((size_t)count, sizeof *cache->lanes);
    if (cache->lanes == NULL)
        return CONV_NO_MEMORY;
    for (; cache->lane_count < count; cache->lane_count++)
        CUDNN(cudnnCreate, (&cache->lanes[cache->lane_count].handle));
    return CONV_OK;
}

int conv_create(conv_cache **cache, size_t workspace_limit, int at_once)
{
    conv_cache *made;
    int code;
    if (cache == NULL)
        return CONV_BAD_ARGUMENT;
    *cache = NULL;
    if (at_once < 1)
        return CONV_BAD_ARGUMENT;
    made = (conv_cache *)calloc(1, sizeof *made);
    if (made == NULL)
        return CONV_NO_MEMORY;
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->lane_free, NULL);
    made->workspace_limit = workspace_limit;
    code = make_lanes(made, at_once);
    if (code == CONV_OK)
        *cache = made;
    else
        conv_destroy(made);
    return code;
}

void conv_forget(conv_cache *cache)
{
    int i;
    for (i = 0; cache != NULL && i < BUCKETS; i++) {
        while (cache->buckets[i] != NULL) {
            struct entry *entry = cache->buckets[i];
            cache->buckets[i] = entry->next;
            release_plans(entry);
            if (entry->zeros != NULL)
                (void)cudaFree(entry->zeros);
            pthread_mutex_destroy(&entry->lock);
            free(entry);
        }
    }
}

static void release_buffers(conv_cache *cache)
{
    while (cache->buffers != NULL) {
        struct buffer *buffer = cache->buffers;
        cache->buffers = buffer->next;
        if (buffer->own != NULL)
            (void)cudaFree(buffer->own);
        pthread_mutex_destroy(&buffer->lock);
        free(buffer);
    }
}

void conv_destroy(conv_cache *cache)
{
    if (cache == NULL)
        return;
    conv_forget(cache);
    release_buffers(cache);
    while (cache->lane_count > 0)
        (void)cudnnDestroy(cache->lanes[--cache->lane_count].handle);
    free(cache->lanes);
    pthread_cond_destroy(&cache->lane_free);
    pthread_mutex_destroy(&cache->lock);
    free(cache);
}
