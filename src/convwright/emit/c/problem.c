/* ---- A convolution as data ---- */

/* One dimension is computed as two with height 1. */
#define MOST_DIMS 5
#define MOST_SPATIAL 3

enum direction { FORWARD, BACKWARD_DATA, BACKWARD_WEIGHT };

/* The indices of a call's operands. */
enum { FIRST, SECOND, BIAS, RESIDUAL, OUT, WORKSPACE, PLACES };

struct tensor {
    int dims;
    int64_t sizes[MOST_DIMS];
    int64_t strides[MOST_DIMS]; /* in elements */
    int64_t alignment;          /* of the first element, in bytes */
};

/* Sizes are the forward convolution's in every direction: x, w and y also stand for dx, dw and dy. */
struct problem {
    enum direction direction;
    cudnnDataType_t stored, computed;
    int element_bytes;
    struct tensor x, w, y, bias;
    int spatial;
    int64_t before[MOST_SPATIAL], after[MOST_SPATIAL]; /* padding */
    int64_t stride[MOST_SPATIAL], dilation[MOST_SPATIAL];
    int64_t groups;
    bool flip;     /* a true convolution instead of a cross-correlation */
    bool residual; /* added first */
    bool bias_given; /* added next */
    bool relu;     /* applied last */
};

/* Whether anything is fused. cuDNN's pattern then always has a bias. */
static bool fused(const struct problem *problem)
{
    return problem->residual || problem->bias_given || problem->relu;
}

static const struct tensor *first_of(const struct problem *problem)
{
    return problem->direction == BACKWARD_DATA ? &problem->y : &problem->x;
}

static const struct tensor *second_of(const struct problem *problem)
{
    return problem->direction == BACKWARD_WEIGHT ? &problem->y : &problem->w;
}

static const struct tensor *out_of(const struct problem *problem)
{
    switch (problem->direction) {
    case BACKWARD_DATA:
        return &problem->x;
    case BACKWARD_WEIGHT:
        return &problem->w;
    default:
        return &problem->y;
    }
}

static int check_pointer(const void *pointer, bool needed, int64_t alignment)
{
    if ((pointer != NULL) != needed)
        return CONV_BAD_ARGUMENT;
    return (uintptr_t)pointer % (uintptr_t)alignment == 0 ? CONV_OK : CONV_MISALIGNED;
}

static int check_operands(const struct problem *problem, const void *const *operands)
{
    TRY(check_pointer(operands[FIRST], true, first_of(problem)->alignment));
    TRY(check_pointer(operands[SECOND], true, second_of(problem)->alignment));
    TRY(check_pointer(operands[BIAS], problem->bias_given, problem->bias.alignment));
    TRY(check_pointer(operands[RESIDUAL], problem->residual, problem->y.alignment));
    return check_pointer(operands[OUT], true, out_of(problem)->alignment);
}
