// Out-of-line destructors and base answers of the contract simulator/1.
#include <tenon/simulator.hpp>

TENON_ABI_BEGIN

TaskWatch::~TaskWatch() = default;
Simulator::~Simulator() = default;
SimulatorBase::~SimulatorBase() = default;

std::span<const SimulatedField> SimulatorBase::shared() const {
  return {};
}
void SimulatorBase::share(std::uint64_t, std::span<const TensorView>) {}
void* SimulatorBase::query(std::string_view) {
  return nullptr;
}

TENON_ABI_END
