/* ---- A convolution as data ---- */

/* One dimension is computed as two of height 1. */
#define MOST_DIMS 5
#define MOST_SPATIAL 3

enum direction { FORWARD, BACKWARD_DATA, BACKWARD_WEIGHT };

/* The operands of a call, by their places. */
enum { FIRST, SECOND, BIAS, RESIDUAL, OUT, WORKSPACE, PLACES };

struct tensor {
    int dims;
    int64_t sizes[MOST_DIMS];
    int64_t strides[MOST_DIMS]; /* in elements */
    int64_t alignment;          /* of the first element, in bytes */
};

/* Sizes are those of the forward convolution whatever the direction: x, w and y are dx, dw and dy as well. */
struct problem {
    enum direction direction;
    cudnnDataType_t stored, computed;
    int element_bytes;
    struct tensor x, w, y, bias;
    int spatial;
    int64_t before[MOST_SPATIAL], after[MOST_SPATIAL]; /* padding */
    int64_t stride[MOST_SPATIAL], dilation[MOST_SPATIAL];
    int64_t groups;
    bool flip;     /* a true convolution, not the cross-correlation that is usually meant */
    bool residual; /* is added first, */
    bool bias_given; /* then the bias, */
    bool relu;     /* then what is below 0 becomes 0 */
};

/* Whether anything is fused. cuDNN's pattern then has a bias, be there one or not. */
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
