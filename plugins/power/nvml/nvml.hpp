// Source `nvml` (contract power/1): watts of each rank's NVIDIA GPU as they are now, and its energy counter.
#pragma once

#include "library.hpp"

#include <tenon/plugin.hpp>
#include <tenon/power.hpp>

#include <memory>
#include <string>

namespace tenon::nvml {

/// Where rank `rank` of this machine finds its GPU, with CUDA's rules for `visible`, the text of
/// CUDA_VISIBLE_DEVICES, which is null where it is not set.
struct Place {
  int index = 0;     ///< for NVML
  std::string uuid;  ///< instead of the index, where not empty
};
/// Throws Error(kRun) where the rank has none of the visible GPUs, or a part of one.
Place place_of(int rank, const char* visible);

class Nvml final : public PowerSourceBase {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::text("library", "'libnvidia-ml.so.1'")
          .doc_text("name or path of the NVML library, which NVIDIA's driver brings"),
      option::integer("index", "-1")
          .at_least(-1)
          .doc_text("GPU among the visible ones, as device.index; -1: the rank's number on its machine"),
  };
  static constexpr ComponentInfo kInfo{
      .id = "nvml", .summary = "instantaneous watts of each rank's NVIDIA GPU", .options = kOptions};

  explicit Nvml(const Options& options);

  bool every_rank() const override { return true; }
  PowerSourceInfo open(int rank) override;
  double read(double now_s) override;
  double joules() override;

 private:
  double watts() const;

  std::string path_, gpu_name_;
  int index_;
  std::unique_ptr<Library> library_;
  Gpu gpu_ = nullptr;
  bool counts_energy_ = false;
  unsigned long long begun_mj_ = 0;
};

}  // namespace tenon::nvml
