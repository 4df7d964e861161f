// NCCL: the subset of its interface that this plugin uses, and the library of this process.
#pragma once

#include <climits>
#include <cstddef>
#include <string>

namespace tenon::nccl_transport {

// The subset of NCCL's interface, so that the plugin builds where NCCL is not installed. nccl_check.cpp
// compares it with NVIDIA's nccl.h in the preset `cuda`. Declarations only; Library finds the functions.

/// Values of ncclResult_t.
enum Result : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7
};

/// Values of ncclDataType_t.
enum Type : int {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kUint32 = 3,
  kInt64 = 4,
  kUint64 = 5,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9
};

/// Values of ncclRedOp_t.
enum Op : int { kSum = 0, kMax = 2, kMin = 3 };

inline constexpr int kShrinkDefault = 0, kShrinkAbort = 1, kRevokeDefault = 0;

inline constexpr std::size_t kUniqueIdBytes = 128;
/// ncclUniqueId; passed by value.
struct UniqueId {
  char bytes[kUniqueIdBytes];
};

using Comm = struct ncclComm*;       ///< ncclComm_t
using Stream = struct CUstream_st*;  ///< cudaStream_t

/// ncclConfig_t of 2.28: its size and version tell older and newer libraries which fields exist.
struct Config {
  std::size_t size = sizeof(Config);
  unsigned int magic = 0xcafebeef;
  unsigned int version = 22800;
  int blocking = INT_MIN;
  int cga_cluster_size = INT_MIN;
  int min_ctas = INT_MIN;
  int max_ctas = INT_MIN;
  const char* net_name = nullptr;
  int split_share = INT_MIN;
  int traffic_class = INT_MIN;
  const char* comm_name = nullptr;
  int collnet_enable = INT_MIN;
  int cta_policy = INT_MIN;
  int shrink_share = INT_MIN;
  int nvls_ctas = INT_MIN;
  int channels_per_net_peer = INT_MIN;
  int nvlink_centric = INT_MIN;
};

/// The functions, each under its name in the library without "nccl". Those after kOptionalFrom may be missing
/// in older libraries and are null then.
struct Api {
  int (*GetVersion)(int* version);
  int (*GetUniqueId)(UniqueId* id);
  const char* (*GetErrorString)(int result);
  const char* (*GetLastError)(Comm comm);
  int (*CommInitRankConfig)(Comm* comm, int ranks, UniqueId id, int rank, Config* config);
  int (*CommFinalize)(Comm comm);
  int (*CommDestroy)(Comm comm);
  int (*CommAbort)(Comm comm);
  int (*CommGetAsyncError)(Comm comm, int* error);
  int (*GroupStart)();
  int (*GroupEnd)();
  int (*AllReduce)(const void* send, void* receive, std::size_t count, int type, int op, Comm comm,
                   Stream stream);
  int (*ReduceScatter)(const void* send, void* receive, std::size_t count, int type, int op, Comm comm,
                       Stream stream);
  int (*AllGather)(const void* send, void* receive, std::size_t count, int type, Comm comm, Stream stream);
  int (*Broadcast)(const void* send, void* receive, std::size_t count, int type, int root, Comm comm,
                   Stream stream);
  int (*Reduce)(const void* send, void* receive, std::size_t count, int type, int op, int root, Comm comm,
                Stream stream);
  int (*Send)(const void* send, std::size_t count, int type, int peer, Comm comm, Stream stream);
  int (*Recv)(void* receive, std::size_t count, int type, int peer, Comm comm, Stream stream);
  int (*CommShrink)(Comm comm, int* excluded, int count, Comm* made, Config* config, int flags);  // 2.27
  int (*CommRevoke)(Comm comm, int flags);                                                        // 2.28
};

/// The NCCL library of this process: opened at run time, never linked, so that the program and this plugin
/// run where it is absent, and report that when a run asks for it.
class Library {
 public:
  /// `path`: of the library; "" = libnccl.so.2 in the system loader's search path. Throws Error(kConfig), in
  /// one line with the attempted paths, for a file that is absent, is not NCCL, or is too old.
  explicit Library(const std::string& path);
  // It stays loaded, because its own threads may still run in it.
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  const Api& api() const { return api_; }
  const std::string& version() const { return version_; }  ///< "2.28.9"
  bool shrinks() const { return api_.CommShrink != nullptr && api_.CommRevoke != nullptr; }

  /// Throws Error(kRun) that begins "transport.nccl: ncclCALL" and contains the library's own message, unless
  /// `result` is success or in progress. `comm` may be null.
  void check(int result, const char* call, Comm comm) const;
  /// "unhandled cuda error (1): Cuda failure 'out of memory'".
  std::string text(int result, Comm comm) const;

 private:
  Api api_{};
  std::string version_;
};

}  // namespace tenon::nccl_transport
