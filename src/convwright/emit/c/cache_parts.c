/* ---- The parts of a cache ---- */

#include <pthread.h>

#define BUCKETS 1024

/* A row of the table: the engine or algorithm for these sizes, and convwright's name of it. */
struct row {
    conv_sizes sizes;
    bool classic;
    struct graph_choice engine;
    struct classic_choice algorithm;
    const char *id;
};

/* One set of sizes. It never moves. The first thread that holds the lock plans it. */
struct entry {
    struct entry *next;
    conv_sizes sizes;
    pthread_mutex_t lock;
    bool planned, classic;
    struct problem problem;
    struct graph_plan graph;
    struct classic_plan algorithm;
    void *zeros;
    size_t workspace_bytes;
    char words[MOST_WORDS];
};

/* The workspace of a stream. A run holds the lock while it enqueues: kernels of two runs must not interleave. */
struct buffer {
    struct buffer *next;
    cudaStream_t stream;
    pthread_mutex_t lock;
    void *pointer, *own;
    size_t bytes;
};

/* A cuDNN handle, which one thread uses at a time. */
struct lane {
    cudnnHandle_t handle;
    cudaStream_t stream;
    bool busy;
};

struct conv_cache {
    pthread_mutex_t lock; /* for the lists and the lanes; held briefly */
    pthread_cond_t lane_free;
    size_t workspace_limit;
    int lane_count;
    struct lane *lanes;
    struct buffer *buffers;
    struct entry *buckets[BUCKETS];
};

/* The order of locks: an entry's, a buffer's, then a lane. A thread that holds a lane waits for no other. */

static struct lane *take_lane(conv_cache *cache, cudaStream_t stream)
{
    struct lane *found = NULL;
    int i;
    pthread_mutex_lock(&cache->lock);
    while (found == NULL) {
        for (i = 0; i < cache->lane_count; i++) {
            struct lane *lane = &cache->lanes[i];
            if (!lane->busy && (found == NULL || lane->stream == stream))
                found = lane;
        }
        if (found == NULL)
            pthread_cond_wait(&cache->lane_free, &cache->lock);
    }
    found->busy = true;
    pthread_mutex_unlock(&cache->lock);
    return found;
}

static void leave_lane(conv_cache *cache, struct lane *lane)
{
    pthread_mutex_lock(&cache->lock);
    lane->busy = false;
    pthread_cond_signal(&cache->lane_free);
    pthread_mutex_unlock(&cache->lock);
}

static int use_stream(struct lane *lane, cudaStream_t stream)
{
    if (lane->stream != stream) {
        CUDNN(cudnnSetStream, (lane->handle, stream));
        lane->stream = stream;
    }
    return CONV_OK;
}

static size_t bucket_of(const conv_sizes *sizes)
{
    int64_t numbers[NUMBERS];
    uint64_t hash = 1469598103934665603u; /* FNV-1a */
    size_t i;
    memcpy(numbers, sizes, sizeof numbers);
    for (i = 0; i < NUMBERS; i++)
        hash = (hash ^ (uint64_t)numbers[i]) * 1099511628211u;
    return (size_t)((hash >> 32) % BUCKETS);
}

static struct entry *new_entry(const conv_sizes *sizes)
{
    struct entry *made = (struct entry *)calloc(1, sizeof *made);
    if (made != NULL) {
        made->sizes = *sizes;
        pthread_mutex_init(&made->lock, NULL);
    }
    return made;
}

/* The entry of these sizes, created if necessary; NULL without memory. */
static struct entry *find_entry(conv_cache *cache, const conv_sizes *sizes)
{
    struct entry **bucket = &cache->buckets[bucket_of(sizes)], *entry;
    pthread_mutex_lock(&cache->lock);
    for (entry = *bucket; entry != NULL; entry = entry->next)
        if (memcmp(&entry->sizes, sizes, sizeof *sizes) == 0)
            break;
    if (entry == NULL) {
        entry = new_entry(sizes);
        if (entry != NULL) {
            entry->next = *bucket;
            *bucket = entry;
        }
    }
    pthread_mutex_unlock(&cache->lock);
    return entry;
}

static struct buffer *find_buffer(conv_cache *cache, cudaStream_t stream)
{
    struct buffer *found;
    pthread_mutex_lock(&cache->lock);
    for (found = cache->buffers; found != NULL && found->stream != stream;)
        found = found->next;
    pthread_mutex_unlock(&cache->lock);
    return found;
}

/* The buffer of a stream; a new one is empty. */
static struct buffer *find_or_add_buffer(conv_cache *cache, cudaStream_t stream)
{
    struct buffer *found;
    pthread_mutex_lock(&cache->lock);
    for (found = cache->buffers; found != NULL && found->stream != stream;)
        found = found->next;
    if (found == NULL) {
        found = (struct buffer *)calloc(1, sizeof *found);
        if (found != NULL) {
            found->stream = stream;
            pthread_mutex_init(&found->lock, NULL);
            found->next = cache->buffers;
            cache->buffers = found;
        }
    }
    pthread_mutex_unlock(&cache->lock);
    return found;
}
