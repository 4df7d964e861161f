// Texts and types of operation.hpp.
#include "operation.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

namespace tenon::nccl_transport {
namespace {

std::string_view op_name(ReduceOp op) {
  return op == ReduceOp::kSum ? "sum" : op == ReduceOp::kMax ? "max" : "min";
}

}  // namespace

std::string signature_text(const Signature& s) {
  const std::string tensor = fmt::format("{} {}", dtype_name(s.dtype), s.shape.text());
  switch (s.kind) {
    case Kind::kAllReduce:
      return fmt::format("all_reduce({}, {})", op_name(s.op), tensor);
    case Kind::kReduceScatter:
      return fmt::format("reduce_scatter({}, {})", op_name(s.op), tensor);
    case Kind::kAllGather:
      return fmt::format("all_gather({})", tensor);
    case Kind::kBroadcast:
      return fmt::format("broadcast({}, root {})", tensor, s.root);
    case Kind::kReduce:
      return fmt::format("reduce({}, {}, root {})", op_name(s.op), tensor, s.root);
    case Kind::kAllToAll:
      return fmt::format("all_to_all({})", dtype_name(s.dtype));
    case Kind::kBarrier:
      return "barrier";
    case Kind::kSend:
      return fmt::format("send({}, to member {}, tag {})", tensor, s.root, s.tag);
    case Kind::kReceive:
      return fmt::format("receive({}, from member {}, tag {})", tensor, s.root, s.tag);
  }
  return "operation";
}

Reduced reduced_type(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return {kFloat32, 1};
    case DType::kF64:
      return {kFloat64, 1};
    case DType::kBF16:
      return {kBfloat16, 1};
    case DType::kF16:
      return {kFloat16, 1};
    case DType::kC64:
      return {kFloat32, 2};
    case DType::kC128:
      return {kFloat64, 2};
    case DType::kI8:
      return {kInt8, 1};
    case DType::kU8:
    case DType::kBool:
      return {kUint8, 1};
    case DType::kI32:
      return {kInt32, 1};
    case DType::kU32:
      return {kUint32, 1};
    case DType::kI64:
      return {kInt64, 1};
    case DType::kU64:
      return {kUint64, 1};
    default:
      fail_config(
          fmt::format("transport.nccl: NCCL does not reduce {}; convert it, or take transport.type = "
                      "\"socket\"",
                      dtype_name(dtype)));
  }
}

int reduce_op(ReduceOp op) {
  return op == ReduceOp::kSum ? kSum : op == ReduceOp::kMax ? kMax : kMin;
}

}  // namespace tenon::nccl_transport
