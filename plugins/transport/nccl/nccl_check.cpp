// Compiled only in the preset `cuda`: checks library.hpp against NVIDIA's header.
#include "library.hpp"

#include <nccl.h>

#include <type_traits>

namespace tenon::nccl_transport {
namespace {

static_assert(kSuccess == +ncclSuccess && kUnhandledCudaError == +ncclUnhandledCudaError &&
              kSystemError == +ncclSystemError && kInternalError == +ncclInternalError &&
              kInvalidArgument == +ncclInvalidArgument && kInvalidUsage == +ncclInvalidUsage &&
              kRemoteError == +ncclRemoteError && kInProgress == +ncclInProgress);
static_assert(kInt8 == +ncclInt8 && kUint8 == +ncclUint8 && kInt32 == +ncclInt32 && kUint32 == +ncclUint32 &&
              kInt64 == +ncclInt64 && kUint64 == +ncclUint64 && kFloat16 == +ncclFloat16 &&
              kFloat32 == +ncclFloat32 && kFloat64 == +ncclFloat64 && kBfloat16 == +ncclBfloat16);
static_assert(kSum == +ncclSum && kMax == +ncclMax && kMin == +ncclMin);
static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId) && kUniqueIdBytes == NCCL_UNIQUE_ID_BYTES);
static_assert(sizeof(ncclResult_t) == sizeof(int) && sizeof(ncclDataType_t) == sizeof(int) &&
              sizeof(ncclRedOp_t) == sizeof(int));

// The configuration grows at its end, so a later header may be longer.
static_assert(sizeof(Config) <= sizeof(ncclConfig_t));
static_assert(offsetof(Config, magic) == offsetof(ncclConfig_t, magic) &&
              offsetof(Config, version) == offsetof(ncclConfig_t, version) &&
              offsetof(Config, blocking) == offsetof(ncclConfig_t, blocking) &&
              offsetof(Config, net_name) == offsetof(ncclConfig_t, netName) &&
              offsetof(Config, comm_name) == offsetof(ncclConfig_t, commName) &&
              offsetof(Config, nvlink_centric) == offsetof(ncclConfig_t, nvlinkCentricSched));
static_assert(NCCL_VERSION_CODE < 22800 || kShrinkAbort == NCCL_SHRINK_ABORT);

/// Equal except for enumerations, which pass as int, and structs of the same size.
template <typename Real>
struct Plain {
  using type = std::conditional_t<std::is_enum_v<Real>, int, Real>;
};
template <>
struct Plain<ncclUniqueId> {
  using type = UniqueId;
};
template <>
struct Plain<ncclResult_t*> {
  using type = int*;
};
template <>
struct Plain<ncclConfig_t*> {
  using type = Config*;
};
template <>
struct Plain<ncclUniqueId*> {
  using type = UniqueId*;
};
/// Handles are pointers to opaque types.
template <typename T>
struct Handle {
  using type = T;
};
template <>
struct Handle<ncclComm_t> {
  using type = Comm;
};
template <>
struct Handle<ncclComm_t*> {
  using type = Comm*;
};
template <>
struct Handle<cudaStream_t> {
  using type = Stream;
};

template <typename Real>
struct Signature;
template <typename Returned, typename... Arguments>
struct Signature<Returned (*)(Arguments...)> {
  using type = typename Plain<Returned>::type (*)(typename Handle<typename Plain<Arguments>::type>::type...);
};

#define TENON_NCCL_SAME(name) \
  static_assert(std::is_same_v<decltype(Api::name), Signature<decltype(&nccl##name)>::type>)
TENON_NCCL_SAME(GetVersion);
TENON_NCCL_SAME(GetUniqueId);
TENON_NCCL_SAME(GetErrorString);
TENON_NCCL_SAME(GetLastError);
TENON_NCCL_SAME(CommInitRankConfig);
TENON_NCCL_SAME(CommFinalize);
TENON_NCCL_SAME(CommDestroy);
TENON_NCCL_SAME(CommAbort);
TENON_NCCL_SAME(CommGetAsyncError);
TENON_NCCL_SAME(GroupStart);
TENON_NCCL_SAME(GroupEnd);
TENON_NCCL_SAME(AllReduce);
TENON_NCCL_SAME(ReduceScatter);
TENON_NCCL_SAME(AllGather);
TENON_NCCL_SAME(Broadcast);
TENON_NCCL_SAME(Reduce);
TENON_NCCL_SAME(Send);
TENON_NCCL_SAME(Recv);
TENON_NCCL_SAME(CommShrink);
TENON_NCCL_SAME(CommRevoke);
#undef TENON_NCCL_SAME

}  // namespace
}  // namespace tenon::nccl_transport
