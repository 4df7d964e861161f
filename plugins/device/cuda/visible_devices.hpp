// Checks that this program has code for the visible GPUs.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

namespace tenon::cuda {

struct VisibleDevice {
  std::string name;
  int architecture = 0;  ///< 90 for sm_90
};

/// The driver compiles the code for newer ones than it was made for.
inline constexpr int kOldestArchitecture = 90;

inline bool is_too_old(const VisibleDevice& device) {
  return device.architecture < kOldestArchitecture;
}

/// The refusal; "" unless every one of them is too old.
inline std::string all_too_old(const std::vector<VisibleDevice>& devices) {
  if (!std::all_of(devices.begin(), devices.end(), is_too_old)) return "";
  std::string text;
  for (std::size_t i = 0; i < devices.size(); ++i)
    text +=
        fmt::format("{}{} is {} (sm_{})", i == 0 ? "" : ", ", i, devices[i].name, devices[i].architecture);
  return fmt::format("no visible GPU is of sm_{} or newer, for which this program has code: {}",
                     kOldestArchitecture, text);
}

/// The refusal of one that is requested among others.
inline std::string too_old(int index, const VisibleDevice& device) {
  return fmt::format(
      "device {} is {} (sm_{}), and this program has code for sm_{} and newer; say device.index, "
      "or leave it out of CUDA_VISIBLE_DEVICES",
      index, device.name, device.architecture, kOldestArchitecture);
}

}  // namespace tenon::cuda
