// Probes of what a device claims to compute, for tenon doctor: a flag that a library or a driver sets is no
// proof. Probes are small and of odd sizes, on numbers that every format represents, so that a correct
// implementation gets exactly the host's result.
#pragma once

#include <tenon/device.hpp>

namespace tenon::cuda {

/// Maps, sums and products.
void probe_arithmetic(Device& device, FactReport& report);
/// Products of codes: tries the available formats; for the rest the reason is reported as a fact.
void probe_codes(Device& device, FactReport& report);
void probe_transforms(Device& device, FactReport& report);
/// Convolutions from images, where a library computes them.
void probe_convolutions(Device& device, FactReport& report);

}  // namespace tenon::cuda
