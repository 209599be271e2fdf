/* A GPU, played: put ahead of an emitted file by the compiler's -include. cuDNN plans for the device of a property record,
   as it does for one that is elsewhere, and what would run is written down instead. */
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cuda_runtime_api.h>
#include <cudnn.h>

#define FAKED __attribute__((unused)) static
#define MOST_HELD 4096

static pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;
static cudnnBackendDescriptor_t fake_properties;
static char fake_text[1 << 20];
static size_t fake_used;
static int fake_handles, fake_mixed;
static const void *fake_busy[64];
static int64_t fake_made, fake_destroyed, fake_allocated, fake_freed;
static int fake_failing_mallocs, fake_failing_memsets, fake_failing_synchronizes;
static size_t fake_workspace_bytes = 640;
static cudnnStatus_t fake_workspace_status = CUDNN_STATUS_SUCCESS;
static struct fake_pack {
    const void *pack;
    int64_t count, uids[8];
    const void *pointers[8], *workspace;
} fake_packs[MOST_HELD];

__attribute__((format(printf, 1, 2))) FAKED void fake_say(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    if (fake_used < sizeof fake_text - 4096)
        fake_used += (size_t)vsnprintf(fake_text + fake_used, sizeof fake_text - fake_used, format, values);
    va_end(values);
}

/* Told to a test. */

int fake_device_is(const char *record)
{
    cudnnStatus_t status = cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &fake_properties);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendSetAttribute(fake_properties, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                                          (int64_t)strlen(record), record);
    return (int)(status == CUDNN_STATUS_SUCCESS ? cudnnBackendFinalize(fake_properties) : status);
}

const char *fake_said(void)
{
    return fake_text;
}

void fake_forget(void)
{
    fake_used = 0;
    fake_text[0] = '\0';
}

void fake_answer(int status, size_t bytes)
{
    fake_workspace_status = (cudnnStatus_t)status;
    fake_workspace_bytes = bytes;
}

/* Let the next calls fail, so many of each. */
void fake_fail(int mallocs, int memsets, int synchronizes)
{
    fake_failing_mallocs = mallocs;
    fake_failing_memsets = memsets;
    fake_failing_synchronizes = synchronizes;
}

int64_t fake_alive(void)
{
    return fake_made - fake_destroyed + fake_allocated - fake_freed + fake_handles;
}

int64_t fake_descriptors_made(void)
{
    return fake_made;
}

int fake_mixed_up(void)
{
    return fake_mixed;
}

/* Handles and streams. */

FAKED cudnnStatus_t fake_create(cudnnHandle_t *handle)
{
    pthread_mutex_lock(&fake_lock);
    *handle = (cudnnHandle_t)(uintptr_t)(0x100 + ++fake_handles);
    pthread_mutex_unlock(&fake_lock);
    return CUDNN_STATUS_SUCCESS;
}

FAKED cudnnStatus_t fake_destroy(cudnnHandle_t handle)
{
    (void)handle;
    fake_handles--;
    return CUDNN_STATUS_SUCCESS;
}

FAKED cudnnStatus_t fake_set_stream(cudnnHandle_t handle, cudaStream_t stream)
{
    pthread_mutex_lock(&fake_lock);
    fake_say("stream %p %p\n", (void *)handle, (void *)stream);
    pthread_mutex_unlock(&fake_lock);
    return CUDNN_STATUS_SUCCESS;
}

/* What two threads must not use at the same time. */
FAKED void fake_enter(const void *thing, bool entering)
{
    int i;
    pthread_mutex_lock(&fake_lock);
    for (i = 0; i < 64 && thing != NULL; i++)
        if (entering ? fake_busy[i] == NULL : fake_busy[i] == thing)
            break;
    for (int j = 0; entering && thing != NULL && j < 64; j++)
        fake_mixed += fake_busy[j] == thing;
    if (i < 64 && thing != NULL)
        fake_busy[i] = entering ? thing : NULL;
    pthread_mutex_unlock(&fake_lock);
}

/* The graph API. */

FAKED cudnnStatus_t fake_make(cudnnBackendDescriptorType_t kind, cudnnBackendDescriptor_t *made)
{
    __atomic_add_fetch(&fake_made, 1, __ATOMIC_SEQ_CST);
    return cudnnBackendCreateDescriptor(kind, made);
}

FAKED cudnnStatus_t fake_drop(cudnnBackendDescriptor_t whole)
{
    __atomic_add_fetch(&fake_destroyed, 1, __ATOMIC_SEQ_CST);
    return cudnnBackendDestroyDescriptor(whole);
}

FAKED struct fake_pack *fake_pack_of(const void *pack, bool add)
{
    int i, spare = -1;
    for (i = 0; i < MOST_HELD; i++) {
        if (fake_packs[i].pack == pack)
            return &fake_packs[i];
        if (fake_packs[i].pack == NULL && spare < 0)
            spare = i;
    }
    if (!add || spare < 0)
        abort();
    fake_packs[spare].pack = pack;
    return &fake_packs[spare];
}

FAKED void fake_note(cudnnBackendDescriptor_t whole, cudnnBackendAttributeName_t name, int64_t count,
                     const void *values)
{
    if (name < CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS || name > CUDNN_ATTR_VARIANT_PACK_WORKSPACE)
        return;
    pthread_mutex_lock(&fake_lock);
    struct fake_pack *pack = fake_pack_of(whole, true);
    if (name == CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS) {
        pack->count = count;
        memcpy(pack->uids, values, (size_t)count * sizeof pack->uids[0]);
    }
    if (name == CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS)
        memcpy(pack->pointers, values, (size_t)count * sizeof pack->pointers[0]);
    if (name == CUDNN_ATTR_VARIANT_PACK_WORKSPACE)
        memcpy(&pack->workspace, values, sizeof pack->workspace);
    pthread_mutex_unlock(&fake_lock);
}

/* Where a handle would be told, the device's record is, as for one that is elsewhere. */
FAKED cudnnStatus_t fake_set(cudnnBackendDescriptor_t whole, cudnnBackendAttributeName_t name,
                             cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
    cudnnBackendAttributeName_t instead = name;
    if (name == CUDNN_ATTR_OPERATIONGRAPH_HANDLE)
        return CUDNN_STATUS_SUCCESS;
    if (name == CUDNN_ATTR_EXECUTION_PLAN_HANDLE)
        return cudnnBackendSetAttribute(whole, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                        &fake_properties);
    if (name == CUDNN_ATTR_ENGINE_OPERATION_GRAPH)
        instead = CUDNN_ATTR_ENGINE_DEVICEPROP;
    if (name == CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH)
        instead = CUDNN_ATTR_ENGINEHEUR_DEVICEPROP;
    if (instead != name)
        (void)cudnnBackendSetAttribute(whole, instead, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &fake_properties);
    fake_note(whole, name, count, values);
    return cudnnBackendSetAttribute(whole, name, type, count, values);
}

FAKED cudnnStatus_t fake_execute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t finished)
{
    static char json[1 << 16];
    int64_t length = 0;
    fake_enter(handle, true);
    fake_enter(plan, true);
    pthread_mutex_lock(&fake_lock);
    struct fake_pack pack = *fake_pack_of(finished, false);
    pthread_mutex_unlock(&fake_lock);
    fake_enter(pack.workspace, true);
    usleep(200);
    pthread_mutex_lock(&fake_lock);
    (void)cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, sizeof json,
                                   &length, json);
    fake_say("execute %p", (void *)handle);
    for (int64_t i = 0; i < pack.count; i++)
        fake_say(" %d:%p", (int)pack.uids[i], pack.pointers[i]);
    fake_say(" workspace:%p %.*s\n", pack.workspace, (int)length, json);
    pthread_mutex_unlock(&fake_lock);
    fake_enter(pack.workspace, false);
    fake_enter(plan, false);
    fake_enter(handle, false);
    return CUDNN_STATUS_SUCCESS;
}

/* The classic API. */

FAKED void fake_say_ints(const int *numbers, int count)
{
    for (int i = 0; i < count; i++)
        fake_say("%s%d", i ? "," : " ", numbers[i]);
}

FAKED void fake_say_tensor(const char *name, cudnnTensorDescriptor_t tensor)
{
    cudnnDataType_t type;
    int dims = 0, sizes[8], strides[8];
    (void)cudnnGetTensorNdDescriptor(tensor, 8, &type, &dims, sizes, strides);
    fake_say(" %s %d", name, (int)type);
    fake_say_ints(sizes, dims);
    fake_say_ints(strides, dims);
}

FAKED void fake_say_weight(cudnnFilterDescriptor_t weight)
{
    cudnnDataType_t type;
    cudnnTensorFormat_t format;
    int dims = 0, sizes[8];
    (void)cudnnGetFilterNdDescriptor(weight, 8, &type, &format, &dims, sizes);
    fake_say(" w %d %d", (int)type, (int)format);
    fake_say_ints(sizes, dims);
}

FAKED void fake_say_window(cudnnConvolutionDescriptor_t window)
{
    cudnnConvolutionMode_t mode;
    cudnnDataType_t type;
    cudnnMathType_t math;
    int dims = 0, groups = 0, padding[4], stride[4], dilation[4];
    /* cuDNN refuses to be asked for more dimensions than there are. */
    if (cudnnGetConvolutionNdDescriptor(window, 3, &dims, padding, stride, dilation, &mode, &type))
        (void)cudnnGetConvolutionNdDescriptor(window, 2, &dims, padding, stride, dilation, &mode, &type);
    (void)cudnnGetConvolutionGroupCount(window, &groups);
    (void)cudnnGetConvolutionMathType(window, &math);
    fake_say(" window");
    fake_say_ints(padding, dims);
    fake_say_ints(stride, dims);
    fake_say_ints(dilation, dims);
    fake_say(" mode %d type %d groups %d math %d", (int)mode, (int)type, groups, (int)math);
}

/* The descriptors of somebody else, in the same words. */
void fake_tell(cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w, cudnnTensorDescriptor_t y,
               cudnnConvolutionDescriptor_t window)
{
    fake_say_tensor("x", x);
    fake_say_weight(w);
    fake_say_tensor("y", y);
    fake_say_window(window);
}

FAKED void fake_say_call(const char *name, int algorithm, const void *one, const void *zero, bool is_long,
                         const void *first, const void *second, const void *out, const void *workspace, size_t bytes)
{
    double factors[2];
    factors[0] = is_long ? *(const double *)one : (double)*(const float *)one;
    factors[1] = is_long ? *(const double *)zero : (double)*(const float *)zero;
    fake_say("%s %d factors %g %g first:%p second:%p out:%p workspace:%p %zu", name, algorithm, factors[0], factors[1],
             first, second, out, workspace, bytes);
}

FAKED bool fake_is_long(cudnnTensorDescriptor_t tensor)
{
    cudnnDataType_t type;
    int dims = 0, sizes[8], strides[8];
    (void)cudnnGetTensorNdDescriptor(tensor, 8, &type, &dims, sizes, strides);
    return type == CUDNN_DATA_DOUBLE;
}

FAKED cudnnStatus_t fake_need(cudnnHandle_t handle, size_t *bytes)
{
    (void)handle;
    *bytes = fake_workspace_bytes;
    return fake_workspace_status;
}

FAKED cudnnStatus_t fake_forward(const void *one, cudnnTensorDescriptor_t x, const void *first,
                                 cudnnFilterDescriptor_t w, const void *second, cudnnConvolutionDescriptor_t window,
                                 int algorithm, void *workspace, size_t bytes, const void *zero,
                                 cudnnTensorDescriptor_t y, void *out)
{
    fake_say_call("forward", algorithm, one, zero, fake_is_long(x), first, second, out, workspace, bytes);
    fake_tell(x, w, y, window);
    fake_say("\n");
    return CUDNN_STATUS_SUCCESS;
}

FAKED cudnnStatus_t fake_backward_data(const void *one, cudnnFilterDescriptor_t w, const void *second,
                                       cudnnTensorDescriptor_t y, const void *first,
                                       cudnnConvolutionDescriptor_t window, int algorithm, void *workspace,
                                       size_t bytes, const void *zero, cudnnTensorDescriptor_t x, void *out)
{
    fake_say_call("backward_data", algorithm, one, zero, fake_is_long(x), first, second, out, workspace, bytes);
    fake_tell(x, w, y, window);
    fake_say("\n");
    return CUDNN_STATUS_SUCCESS;
}

FAKED cudnnStatus_t fake_backward_weight(const void *one, cudnnTensorDescriptor_t x, const void *first,
                                         cudnnTensorDescriptor_t y, const void *second,
                                         cudnnConvolutionDescriptor_t window, int algorithm, void *workspace,
                                         size_t bytes, const void *zero, cudnnFilterDescriptor_t w, void *out)
{
    fake_say_call("backward_weight", algorithm, one, zero, fake_is_long(x), first, second, out, workspace, bytes);
    fake_tell(x, w, y, window);
    fake_say("\n");
    return CUDNN_STATUS_SUCCESS;
}

FAKED cudnnStatus_t fake_fused(const void *one, cudnnTensorDescriptor_t x, const void *first,
                               cudnnFilterDescriptor_t w, const void *second, cudnnConvolutionDescriptor_t window,
                               int algorithm, void *workspace, size_t bytes, const void *scale,
                               cudnnTensorDescriptor_t z, const void *residual, cudnnTensorDescriptor_t b,
                               const void *bias, cudnnActivationDescriptor_t activation, cudnnTensorDescriptor_t y,
                               void *out)
{
    cudnnActivationMode_t mode;
    cudnnNanPropagation_t nan;
    double limit;
    fake_say_call("fused", algorithm, one, scale, fake_is_long(x), first, second, out, workspace, bytes);
    fake_tell(x, w, y, window);
    fake_say_tensor("z", z);
    fake_say_tensor("b", b);
    (void)cudnnGetActivationDescriptor(activation, &mode, &nan, &limit);
    fake_say(" residual:%p bias:%p activation %d nan %d\n", residual, bias, (int)mode, (int)nan);
    return CUDNN_STATUS_SUCCESS;
}

/* Memory. What is allocated holds NaN, as memory may. */

FAKED cudaError_t fake_malloc(void **pointer, size_t bytes)
{
    size_t whole = (bytes + 255) / 256 * 256;
    fake_say("malloc %zu\n", bytes);
    if (fake_failing_mallocs > 0) {
        fake_failing_mallocs--;
        return cudaErrorMemoryAllocation;
    }
    *pointer = aligned_alloc(256, whole);
    if (*pointer == NULL)
        return cudaErrorMemoryAllocation;
    fake_allocated++;
    memset(*pointer, 0xff, whole);
    return cudaSuccess;
}

FAKED cudaError_t fake_free(void *pointer)
{
    fake_freed++;
    free(pointer);
    return cudaSuccess;
}

FAKED cudaError_t fake_memset(void *pointer, int value, size_t bytes)
{
    if (fake_failing_memsets > 0) {
        fake_failing_memsets--;
        return cudaErrorStreamCaptureImplicit;
    }
    memset(pointer, value, bytes);
    return cudaSuccess;
}

FAKED cudaError_t fake_synchronize(cudaStream_t stream)
{
    fake_say("synchronize %p\n", (void *)stream);
    if (fake_failing_synchronizes > 0) {
        fake_failing_synchronizes--;
        return cudaErrorStreamCaptureUnsupported;
    }
    return cudaSuccess;
}

#define cudnnCreate fake_create
#define cudnnDestroy fake_destroy
#define cudnnSetStream fake_set_stream
#define cudnnBackendCreateDescriptor fake_make
#define cudnnBackendDestroyDescriptor fake_drop
#define cudnnBackendSetAttribute fake_set
#define cudnnBackendExecute fake_execute
#define cudnnGetConvolutionForwardWorkspaceSize(handle, a, b, c, d, algorithm, bytes) fake_need(handle, bytes)
#define cudnnGetConvolutionBackwardDataWorkspaceSize(handle, a, b, c, d, algorithm, bytes) fake_need(handle, bytes)
#define cudnnGetConvolutionBackwardFilterWorkspaceSize(handle, a, b, c, d, algorithm, bytes) fake_need(handle, bytes)
#define cudnnConvolutionForward(handle, ...) fake_forward(__VA_ARGS__)
#define cudnnConvolutionBackwardData(handle, ...) fake_backward_data(__VA_ARGS__)
#define cudnnConvolutionBackwardFilter(handle, ...) fake_backward_weight(__VA_ARGS__)
#define cudnnConvolutionBiasActivationForward(handle, ...) fake_fused(__VA_ARGS__)
#define cudaMalloc fake_malloc
#define cudaFree fake_free
#define cudaMemset fake_memset
#define cudaStreamSynchronize fake_synchronize
#define cudaGetLastError() cudaSuccess
#define cudaGetErrorName(error) "cudaErrorPlayed"
#define cudaGetErrorString(error) "played"
