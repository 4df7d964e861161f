// Opening and error texts of library.hpp.
#include "library.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <dlfcn.h>

#include <cstdlib>
#include <string_view>

namespace tenon::nccl_transport {
namespace {

constexpr const char* kUsual = "libnccl.so.2";
/// First version with non-blocking communicators (ncclConfig_t) and the text of the last error.
constexpr int kOldest = 21400;

std::string version_text(int code) {
  const int major = code / 10000;
  return fmt::format("{}.{}.{}", major, code / 100 % 100, code % 100);
}

template <typename Function>
void find(void* library, Function& function, const char* name, const std::string& tried, bool optional) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  if (function != nullptr || optional) return;
  fail_config(
      fmt::format("transport.nccl: {} has no {}; it is not NCCL 2.14 or newer. Name another one with "
                  "transport.library, or take transport.type = \"socket\"",
                  tried, name));
}

}  // namespace

Library::Library(const std::string& path) {
  const std::string tried = path.empty() ? kUsual : path;
  void* const library = ::dlopen(tried.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = ::dlerror();
    const char* const also = std::getenv("LD_LIBRARY_PATH");
    fail_config(fmt::format(
        "transport.nccl: NCCL cannot be opened: {}{}. Install it (Debian: libnccl2), name it with "
        "transport.library = \"/path/{}\", or take transport.type = \"socket\"",
        why != nullptr ? why : tried,
        path.empty() ? fmt::format(" (tried {} where the loader looks; LD_LIBRARY_PATH is '{}')", kUsual,
                                   also != nullptr ? also : "")
                     : std::string(),
        kUsual));
  }
#define TENON_NCCL_FIND(name, optional) find(library, api_.name, "nccl" #name, tried, optional)
  TENON_NCCL_FIND(GetVersion, false);
  int code = 0;
  if (api_.GetVersion(&code) != kSuccess || code < kOldest) {
    fail_config(
        fmt::format("transport.nccl: {} is NCCL {}, expected 2.14 or newer; name another one with "
                    "transport.library",
                    tried, version_text(code)));
  }
  version_ = version_text(code);
  TENON_NCCL_FIND(GetUniqueId, false);
  TENON_NCCL_FIND(GetErrorString, false);
  TENON_NCCL_FIND(GetLastError, false);
  TENON_NCCL_FIND(CommInitRankConfig, false);
  TENON_NCCL_FIND(CommFinalize, false);
  TENON_NCCL_FIND(CommDestroy, false);
  TENON_NCCL_FIND(CommAbort, false);
  TENON_NCCL_FIND(CommGetAsyncError, false);
  TENON_NCCL_FIND(GroupStart, false);
  TENON_NCCL_FIND(GroupEnd, false);
  TENON_NCCL_FIND(AllReduce, false);
  TENON_NCCL_FIND(ReduceScatter, false);
  TENON_NCCL_FIND(AllGather, false);
  TENON_NCCL_FIND(Broadcast, false);
  TENON_NCCL_FIND(Reduce, false);
  TENON_NCCL_FIND(Send, false);
  TENON_NCCL_FIND(Recv, false);
  TENON_NCCL_FIND(CommShrink, true);
  TENON_NCCL_FIND(CommRevoke, true);
#undef TENON_NCCL_FIND
}

std::string Library::text(int result, Comm comm) const {
  const char* const general = api_.GetErrorString(result);
  const char* const last = comm != nullptr ? api_.GetLastError(comm) : nullptr;
  std::string text = fmt::format("{} ({})", general != nullptr ? general : "unknown error", result);
  if (last != nullptr && *last != '\0') text += fmt::format(": {}", last);
  return text;
}

void Library::check(int result, const char* call, Comm comm) const {
  if (result == kSuccess || result == kInProgress) return;
  std::string what = fmt::format("transport.nccl: nccl{} failed: {}", call, text(result, comm));
  if (result == kSystemError || result == kUnhandledCudaError || result == kInternalError)
    what += "; NCCL_DEBUG=INFO makes NCCL say more";
  fail_run(what);
}

}  // namespace tenon::nccl_transport
