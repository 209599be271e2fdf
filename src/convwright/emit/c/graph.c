/* ---- An engine of cuDNN's graph API ---- */

#define MOST_KNOBS CUDNN_KNOB_TYPE_COUNTS
#define MOST_DESCRIPTORS (MOST_KNOBS + 24)
#define MOST_STEPS 3
#define MOST_UIDS 9
#define FIRST_VIRTUAL_UID 101
#define KEPT_PACKS 16

typedef cudnnBackendDescriptor_t descriptor;

struct knob {
    int kind;
    int64_t value;
};

/* An engine. Its numbers are valid for one pattern and one version of cuDNN. */
struct graph_choice {
    int64_t engine;
    int knob_count;
    struct knob knobs[MOST_KNOBS];
};

/* All descriptors, since a descriptor must live as long as those that refer to it. */
struct owned {
    int count;
    descriptor items[MOST_DESCRIPTORS];
};

/* The operands' addresses for cuDNN. A finalized pack cannot be changed. */
struct pack {
    const void *operands[PLACES];
    descriptor finished;
};

struct graph_plan {
    const struct problem *problem;
    struct owned owned;
    descriptor execution;
    size_t workspace_bytes;
    int operand_count;
    int places[PLACES];
    int64_t uids[PLACES];
    int next_pack;
    struct pack packs[KEPT_PACKS];
};

/* The uids of operands in every graph. */
enum { UID_X = 1, UID_W, UID_BIAS, UID_RESIDUAL, UID_Y, UID_DY, UID_DX, UID_DW };

/* cuDNN's names for the parts of the convolution of each direction. */
static const struct wording {
    cudnnBackendDescriptorType_t operation;
    cudnnBackendAttributeName_t window, alpha, beta, first, second, out;
    int64_t first_uid, second_uid, out_uid;
} WORDING[] = {
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, UID_X, UID_W, UID_Y},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, UID_DY, UID_W, UID_DX},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, UID_X, UID_DY,
     UID_DW},
};

static int make(struct owned *owned, cudnnBackendDescriptorType_t kind, descriptor *made)
{
    if (owned->count == MOST_DESCRIPTORS)
        return CONV_NO_MEMORY;
    CUDNN(cudnnBackendCreateDescriptor, (kind, made));
    owned->items[owned->count++] = *made;
    return CONV_OK;
}

static void destroy_all(struct owned *owned)
{
    while (owned->count > 0)
        (void)cudnnBackendDestroyDescriptor(owned->items[--owned->count]);
}

static int set(descriptor whole, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
               const void *values)
{
    CUDNN(cudnnBackendSetAttribute, (whole, name, type, count, values));
    return CONV_OK;
}

static int set_numbers(descriptor whole, cudnnBackendAttributeName_t name, int64_t count, const int64_t *values)
{
    return set(whole, name, CUDNN_TYPE_INT64, count, values);
}

static int set_part(descriptor whole, cudnnBackendAttributeName_t name, descriptor part)
{
    return set(whole, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &part);
}

static int finalize(descriptor whole)
{
    CUDNN(cudnnBackendFinalize, (whole));
    return CONV_OK;
}
