#include "loop/bit_flips.hpp"

#include "loop/witness.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <cstddef>
#include <optional>

namespace tenon::train {
namespace {

using Flip = config::FaultSettings;

constexpr std::int64_t kBitsOfByte = 8;

TensorView tensor_called(const ParameterSet& set, std::string_view name) {
  for (const ParameterInfo& info : set.parameters()) {
    if (info.spec.name == name && info.spec.role != Role::kRowTable) return set.tensor(info.index);
  }
  return {};
}

}  // namespace

BitFlips::BitFlips(Faults& faults, RankReplica& replica, const ParameterSet& gradients, Updater& updater,
                   Executor& executor)
    : faults_(faults), replica_(replica), gradients_(gradients), updater_(updater), executor_(executor) {
  for (const Flip& fault : faults.all_flips()) check(fault);
}

TensorView BitFlips::named(const Flip& fault) const {
  switch (fault.what) {
    case Flip::What::kOutput:
      return executor_.value(fault.tensor);
    case Flip::What::kGradient:
      return tensor_called(gradients_, fault.tensor);
    case Flip::What::kWeight:
      return tensor_called(replica_.live(), fault.tensor);
    case Flip::What::kState:
      break;
  }
  for (const auto& set : updater_.state()) {
    const std::string prefix = std::string(set->name()) + "/";
    if (fault.tensor.starts_with(prefix))
      return tensor_called(*set, std::string_view(fault.tensor).substr(prefix.size()));
  }
  return {};
}

void BitFlips::check(const Flip& fault) const {
  const std::string at = fault.origin.text();
  const TensorView value = named(fault);
  if (value.empty())
    fail_config(fmt::format("{}: [[fault]] kind = \"flip\": rank {} has no {} '{}'; expected {}", at,
                            fault.rank, config::kFlipped.name(fault.what), fault.tensor,
                            fault.what == Flip::What::kOutput  ? "a node that `tenon graph` lists"
                            : fault.what == Flip::What::kState ? "\"optimizer.SLOT/PARAMETER\" of a dense "
                                                                 "parameter, as a witness names it"
                                                               : "a dense parameter that is trained"));
  if (fault.bit >= value.bytes() * kBitsOfByte)
    fail_config(fmt::format("{}: [[fault]] bit = {}: '{}' has {} bits; expected 0 ... {}", at, fault.bit,
                            fault.tensor, value.bytes() * kBitsOfByte, value.bytes() * kBitsOfByte - 1));
}

void BitFlips::flip(const Flip& fault, const TensorView& value) {
  if (fault.bit >= value.bytes() * kBitsOfByte) return;  // the last batch of an output may be shorter
  TensorView byte = value;
  byte.dtype = DType::kU8;
  byte.shape = Shape{1};
  byte.data = static_cast<std::byte*>(value.data) + fault.bit / kBitsOfByte;
  unsigned char held = 0;
  const TensorView host{&held, Shape{1}, DType::kU8, MemorySpace::kHost};
  Device& device = replica_.device();
  device.copy(byte, host);
  device.synchronize();
  held ^= static_cast<unsigned char>(1u << (fault.bit % kBitsOfByte));
  device.copy(host, byte);
  device.synchronize();
}

void BitFlips::output(std::string_view node, int output, const TensorView& value) {
  const std::string name = output_name(node, output);
  while (const std::optional<Flip> fault = faults_.take_flip(Flip::What::kOutput, name)) flip(*fault, value);
}

void BitFlips::gradients() {
  while (const std::optional<Flip> fault = faults_.take_flip(Flip::What::kGradient))
    flip(*fault, named(*fault));
}

void BitFlips::updated() {
  for (const Flip::What what : {Flip::What::kWeight, Flip::What::kState}) {
    while (const std::optional<Flip> fault = faults_.take_flip(what)) flip(*fault, named(*fault));
  }
}

}  // namespace tenon::train
