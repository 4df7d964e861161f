// oneDNN's C interface with owners for its handles and its errors as ours; shared by products and
// convolutions. Memory handles are made once and pointed at the caller's memory by each call.
#pragma once

#include <dnnl.h>
#include <dnnl_debug.h>
#include <sys/mman.h>
#include <tenon/error.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

namespace tenon::cpu {

[[noreturn]] inline void fail_onednn(const char* call, dnnl_status_t status) {
  fail_run(std::string("oneDNN: ") + call + " returned " + dnnl_status2str(status));
}

#define TENON_ONEDNN(call)                                    \
  do {                                                        \
    const dnnl_status_t status_ = (call);                     \
    if (status_ != dnnl_success) fail_onednn(#call, status_); \
  } while (false)

/// Owner of one C handle.
template <class Handle, dnnl_status_t (*Destroy)(Handle)>
class OnednnHandle {
 public:
  OnednnHandle() = default;
  ~OnednnHandle() {
    if (handle_ != nullptr) Destroy(handle_);
  }
  OnednnHandle(const OnednnHandle&) = delete;
  OnednnHandle& operator=(const OnednnHandle&) = delete;
  Handle get() const { return handle_; }
  /// For a call that makes a handle; destroys the previous one.
  Handle* out() {
    if (handle_ != nullptr) Destroy(handle_);
    handle_ = nullptr;
    return &handle_;
  }

 private:
  Handle handle_ = nullptr;
};

using Engine = OnednnHandle<dnnl_engine_t, dnnl_engine_destroy>;
using Stream = OnednnHandle<dnnl_stream_t, dnnl_stream_destroy>;
using Memory = OnednnHandle<dnnl_memory_t, dnnl_memory_destroy>;
using Primitive = OnednnHandle<dnnl_primitive_t, dnnl_primitive_destroy>;
using PrimitiveDesc = OnednnHandle<dnnl_primitive_desc_t, dnnl_primitive_desc_destroy>;
using PrimitiveDescs = OnednnHandle<dnnl_primitive_desc_iterator_t, dnnl_primitive_desc_iterator_destroy>;
using Attributes = OnednnHandle<dnnl_primitive_attr_t, dnnl_primitive_attr_destroy>;
using PostOps = OnednnHandle<dnnl_post_ops_t, dnnl_post_ops_destroy>;

inline void make(Memory& memory, const dnnl_memory_desc_t& desc, dnnl_engine_t engine) {
  TENON_ONEDNN(dnnl_memory_create(memory.out(), &desc, engine, DNNL_MEMORY_NONE));
}
/// oneDNN 2.6.3 does not check whether it got memory for its code, and crashes under a limit of address
/// space. Hence more than a primitive needs is mapped first, and released.
inline void make(Primitive& primitive, const PrimitiveDesc& desc) {
  constexpr std::size_t kRoom = std::size_t{16} << 20;
  void* const room = ::mmap(nullptr, kRoom, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED)
    fail_run("oneDNN: no 16 MiB of address space are left for its code; raise the limit (ulimit -v)");
  ::munmap(room, kRoom);
  TENON_ONEDNN(dnnl_primitive_create(primitive.out(), desc.get()));
}
inline void point(const Memory& memory, void* data) {
  TENON_ONEDNN(dnnl_memory_set_data_handle(memory.get(), data));
}
/// Attributes of a primitive whose scratch the caller passes.
inline void scratch_of_caller(Attributes& attributes) {
  TENON_ONEDNN(dnnl_primitive_attr_create(attributes.out()));
  TENON_ONEDNN(dnnl_primitive_attr_set_scratchpad_mode(attributes.get(), dnnl_scratchpad_mode_user));
}
inline const dnnl_memory_desc_t& scratch_of(const PrimitiveDesc& desc) {
  return *dnnl_primitive_desc_query_md(desc.get(), dnnl_query_scratchpad_md, 0);
}
/// Name of the implementation in the description, e.g. "jit_1x1:avx2".
inline std::string implementation_of(const PrimitiveDesc& desc) {
  const char* name = "";
  TENON_ONEDNN(dnnl_primitive_desc_query(desc.get(), dnnl_query_impl_info_str, 0, &name));
  return name;
}

constexpr std::size_t kOnednnAlignment = 64;
constexpr std::size_t aligned(std::size_t bytes) {
  return (bytes + kOnednnAlignment - 1) / kOnednnAlignment * kOnednnAlignment;
}
/// The first cache line boundary in memory that has room for one more line.
inline std::byte* aligned(void* data) {
  const std::size_t over = reinterpret_cast<std::uintptr_t>(data) % kOnednnAlignment;
  return static_cast<std::byte*>(data) + (kOnednnAlignment - over) % kOnednnAlignment;
}

}  // namespace tenon::cpu
