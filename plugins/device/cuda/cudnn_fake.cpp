// A fake cuDNN for tests: the functions that convolution_cudnn.cpp uses, as sums on host memory, as strict as
// the library. It ranks algorithms first that must not be used.
#include "cudnn_fake.hpp"

#include "convolution_sums.hpp"

#include <cudnn.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

namespace {

using tenon::cuda::ConvolutionShape;

constexpr std::size_t kWorkspace = 1000;
tenon::cuda::FakeCudnn state;

struct Tensor {
  std::vector<int> extents;
};
struct Filter {
  std::vector<int> extents;
};
struct Window {
  std::vector<int> pad, stride, dilation;
  cudnnMathType_t math = CUDNN_DEFAULT_MATH;
};

template <class T, class Opaque>
T& as(Opaque* handle) {
  return *reinterpret_cast<T*>(handle);
}

template <class T, class Handle>
cudnnStatus_t make(Handle* handle) {
  ++state.alive;
  *handle = reinterpret_cast<Handle>(new T);
  return CUDNN_STATUS_SUCCESS;
}
template <class T, class Handle>
cudnnStatus_t destroy(Handle handle) {
  --state.alive;
  delete &as<T>(handle);
  return CUDNN_STATUS_SUCCESS;
}

/// False where the tensors do not belong together.
bool shape_of(const Tensor& x, const Filter& w, const Window& window, const Tensor& y,
              ConvolutionShape& shape) {
  const std::size_t rank = x.extents.size(), dims = rank - 2;
  if (rank < 4 || rank > 5 || w.extents.size() != rank || y.extents.size() != rank ||
      window.pad.size() != dims)
    return false;
  shape.batch = x.extents[0], shape.channels = x.extents[1], shape.features = w.extents[0];
  if (y.extents[0] != x.extents[0] || w.extents[1] != x.extents[1] || y.extents[1] != w.extents[0])
    return false;
  for (std::size_t i = 0; i < dims; ++i) {
    const std::size_t d = 3 - dims + i;
    tenon::kernels::Window& all = shape.window;
    all.in[d] = x.extents[i + 2], all.kernel[d] = w.extents[i + 2], all.out[d] = y.extents[i + 2];
    all.pad[d] = window.pad[i], all.stride[d] = window.stride[i], all.dilation[d] = window.dilation[i];
    const std::int64_t span = all.dilation[d] * (all.kernel[d] - 1) + 1;
    if (all.out[d] != (all.in[d] + 2 * all.pad[d] - span) / all.stride[d] + 1) return false;
  }
  return true;
}

template <class Result, class Algorithm>
void offer(Result& result, Algorithm algorithm, bool ordered) {
  result = {};
  result.algo = algorithm;
  result.status = CUDNN_STATUS_SUCCESS;
  result.memory = kWorkspace;
  result.determinism = ordered ? CUDNN_DETERMINISTIC : CUDNN_NON_DETERMINISTIC;
}

/// Best first: two that must not be used, one that failed, and one of plain sums.
template <class Result, class Algorithm>
cudnnStatus_t judge(const Tensor& x, const Filter& w, const Window& window, const Tensor& y,
                    const std::array<Algorithm, 3>& algorithms, int most, int* count, Result* results) {
  ConvolutionShape shape;
  if (!shape_of(x, w, window, y, shape) || most < 4) return CUDNN_STATUS_BAD_PARAM;
  if (state.declines) return CUDNN_STATUS_NOT_SUPPORTED;
  offer(results[0], algorithms[0], true);
  offer(results[1], algorithms[1], false);
  offer(results[2], algorithms[2], true);
  results[2].status = CUDNN_STATUS_NOT_SUPPORTED;
  offer(results[3], algorithms[2], state.ordered);
  *count = 4;
  return CUDNN_STATUS_SUCCESS;
}

/// to = sum, added to the old value where `old` is 1.
template <class Sum>
cudnnStatus_t run(const Sum& sum, const Window& window, const void* factor, const void* old, void* workspace,
                  std::size_t bytes, void* to) {
  if (state.fails) return CUDNN_STATUS_EXECUTION_FAILED;
  const float beta = *static_cast<const float*>(old);
  if (bytes < kWorkspace || reinterpret_cast<std::uintptr_t>(workspace) % 256 != 0 ||
      *static_cast<const float*>(factor) != 1)
    return CUDNN_STATUS_BAD_PARAM;
  std::memset(workspace, 0xEE, bytes);
  auto* const out = static_cast<float*>(to);
  for (std::int64_t i = 0; i < sum.items(); ++i) out[i] = beta == 0 ? sum(i) : sum(i) + beta * out[i];
  ++state.convolved;
  if (window.math != CUDNN_FMA_MATH) ++state.rounded;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t size_of(std::size_t* bytes) {
  *bytes = kWorkspace;
  return CUDNN_STATUS_SUCCESS;
}

const float* floats(const void* data) {
  return static_cast<const float*>(data);
}

}  // namespace

namespace tenon::cuda {
FakeCudnn& fake_cudnn() {
  return state;
}
}  // namespace tenon::cuda

extern "C" {

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  if (!state.starts) return CUDNN_STATUS_NOT_INITIALIZED;
  ++state.alive;
  *handle = reinterpret_cast<cudnnHandle_t>(&state);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t) {
  --state.alive;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t, cudaStream_t) {
  return CUDNN_STATUS_SUCCESS;
}
std::size_t cudnnGetVersion() {
  return 91203;
}
const char* cudnnGetErrorString(cudnnStatus_t) {
  return "NAME_OF_FAILURE";
}
void cudnnGetLastErrorString(char* text, std::size_t bytes) {
  std::strncpy(text, "did not work", bytes);
}

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* tensor) {
  return make<Tensor>(tensor);
}
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t tensor) {
  return destroy<Tensor>(tensor);
}
cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t tensor, cudnnDataType_t type, int dims,
                                         const int* extents, const int* strides) {
  if (type != CUDNN_DATA_FLOAT || dims < 4) return CUDNN_STATUS_BAD_PARAM;
  int packed = 1;
  for (int d = dims - 1; d >= 0; --d) {
    if (strides[d] != packed) return CUDNN_STATUS_NOT_SUPPORTED;
    packed *= extents[d];
  }
  as<Tensor>(tensor).extents.assign(extents, extents + dims);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* filter) {
  return make<Filter>(filter);
}
cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t filter) {
  return destroy<Filter>(filter);
}
cudnnStatus_t cudnnSetFilterNdDescriptor(cudnnFilterDescriptor_t filter, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int dims, const int* extents) {
  if (type != CUDNN_DATA_FLOAT || format != CUDNN_TENSOR_NCHW) return CUDNN_STATUS_BAD_PARAM;
  as<Filter>(filter).extents.assign(extents, extents + dims);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* window) {
  return make<Window>(window);
}
cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t window) {
  return destroy<Window>(window);
}
cudnnStatus_t cudnnSetConvolutionNdDescriptor(cudnnConvolutionDescriptor_t window, int dims, const int* pad,
                                              const int* stride, const int* dilation,
                                              cudnnConvolutionMode_t mode, cudnnDataType_t compute) {
  if (mode != CUDNN_CROSS_CORRELATION || compute != CUDNN_DATA_FLOAT) return CUDNN_STATUS_BAD_PARAM;
  auto& w = as<Window>(window);
  w.pad.assign(pad, pad + dims), w.stride.assign(stride, stride + dims);
  w.dilation.assign(dilation, dilation + dims);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t window, cudnnMathType_t math) {
  as<Window>(window).math = math;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t, const cudnnTensorDescriptor_t x,
                                                     const cudnnFilterDescriptor_t w,
                                                     const cudnnConvolutionDescriptor_t window,
                                                     const cudnnTensorDescriptor_t y, int most, int* count,
                                                     cudnnConvolutionFwdAlgoPerf_t* results) {
  return judge(as<Tensor>(x), as<Filter>(w), as<Window>(window), as<Tensor>(y),
               std::array{CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD, CUDNN_CONVOLUTION_FWD_ALGO_GEMM,
                          CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM},
               most, count, results);
}
cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(cudnnHandle_t, const cudnnFilterDescriptor_t w,
                                                          const cudnnTensorDescriptor_t dy,
                                                          const cudnnConvolutionDescriptor_t window,
                                                          const cudnnTensorDescriptor_t dx, int most,
                                                          int* count,
                                                          cudnnConvolutionBwdDataAlgoPerf_t* results) {
  return judge(as<Tensor>(dx), as<Filter>(w), as<Window>(window), as<Tensor>(dy),
               std::array{CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT, CUDNN_CONVOLUTION_BWD_DATA_ALGO_0,
                          CUDNN_CONVOLUTION_BWD_DATA_ALGO_1},
               most, count, results);
}
cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(cudnnHandle_t, const cudnnTensorDescriptor_t x,
                                                            const cudnnTensorDescriptor_t dy,
                                                            const cudnnConvolutionDescriptor_t window,
                                                            const cudnnFilterDescriptor_t dw, int most,
                                                            int* count,
                                                            cudnnConvolutionBwdFilterAlgoPerf_t* results) {
  return judge(as<Tensor>(x), as<Filter>(dw), as<Window>(window), as<Tensor>(dy),
               std::array{CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3,
                          CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1},
               most, count, results);
}
cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(cudnnHandle_t, const cudnnTensorDescriptor_t,
                                                      const cudnnFilterDescriptor_t,
                                                      const cudnnConvolutionDescriptor_t,
                                                      const cudnnTensorDescriptor_t,
                                                      cudnnConvolutionFwdAlgo_t, std::size_t* bytes) {
  return size_of(bytes);
}
cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(cudnnHandle_t, const cudnnFilterDescriptor_t,
                                                           const cudnnTensorDescriptor_t,
                                                           const cudnnConvolutionDescriptor_t,
                                                           const cudnnTensorDescriptor_t,
                                                           cudnnConvolutionBwdDataAlgo_t,
                                                           std::size_t* bytes) {
  return size_of(bytes);
}
cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(cudnnHandle_t, const cudnnTensorDescriptor_t,
                                                             const cudnnTensorDescriptor_t,
                                                             const cudnnConvolutionDescriptor_t,
                                                             const cudnnFilterDescriptor_t,
                                                             cudnnConvolutionBwdFilterAlgo_t,
                                                             std::size_t* bytes) {
  return size_of(bytes);
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t, const void* alpha, const cudnnTensorDescriptor_t x_desc,
                                      const void* x, const cudnnFilterDescriptor_t w_desc, const void* w,
                                      const cudnnConvolutionDescriptor_t window,
                                      cudnnConvolutionFwdAlgo_t algorithm, void* workspace, std::size_t bytes,
                                      const void* beta, const cudnnTensorDescriptor_t y_desc, void* y) {
  ConvolutionShape shape;
  if (algorithm != CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM ||
      !shape_of(as<Tensor>(x_desc), as<Filter>(w_desc), as<Window>(window), as<Tensor>(y_desc), shape))
    return CUDNN_STATUS_BAD_PARAM;
  return run(tenon::cuda::ForwardSum{shape, floats(x), floats(w)}, as<Window>(window), alpha, beta, workspace,
             bytes, y);
}
cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t, const void* alpha,
                                           const cudnnFilterDescriptor_t w_desc, const void* w,
                                           const cudnnTensorDescriptor_t dy_desc, const void* dy,
                                           const cudnnConvolutionDescriptor_t window,
                                           cudnnConvolutionBwdDataAlgo_t algorithm, void* workspace,
                                           std::size_t bytes, const void* beta,
                                           const cudnnTensorDescriptor_t dx_desc, void* dx) {
  ConvolutionShape shape;
  if (algorithm != CUDNN_CONVOLUTION_BWD_DATA_ALGO_1 ||
      !shape_of(as<Tensor>(dx_desc), as<Filter>(w_desc), as<Window>(window), as<Tensor>(dy_desc), shape))
    return CUDNN_STATUS_BAD_PARAM;
  return run(tenon::cuda::InputSum{shape, floats(w), floats(dy)}, as<Window>(window), alpha, beta, workspace,
             bytes, dx);
}
cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t, const void* alpha,
                                             const cudnnTensorDescriptor_t x_desc, const void* x,
                                             const cudnnTensorDescriptor_t dy_desc, const void* dy,
                                             const cudnnConvolutionDescriptor_t window,
                                             cudnnConvolutionBwdFilterAlgo_t algorithm, void* workspace,
                                             std::size_t bytes, const void* beta,
                                             const cudnnFilterDescriptor_t dw_desc, void* dw) {
  ConvolutionShape shape;
  if (algorithm != CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1 ||
      !shape_of(as<Tensor>(x_desc), as<Filter>(dw_desc), as<Window>(window), as<Tensor>(dy_desc), shape))
    return CUDNN_STATUS_BAD_PARAM;
  return run(tenon::cuda::WeightSum{shape, floats(x), floats(dy)}, as<Window>(window), alpha, beta, workspace,
             bytes, dw);
}

}  // extern "C"
