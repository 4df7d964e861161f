// The networks over fields and images that the step benchmarks train: tables of their configuration, and the
// arguments of their peer.
#pragma once

#include "step_bench.hpp"

namespace tenon::bench {

struct FieldShape {
  std::string peer;  ///< --model of step_fields_torch.py
  int batch = 0;
  std::string tables;  ///< [data], [model] and [optimizer]
};

/// Li et al. 2021: width 32, 12 modes, four layers, 64 x 64 points.
inline FieldShape fno_shape(int batch) {
  return {"fno", batch,
          fmt::format(R"([data]
type = "random_fields"
points = [64, 64]
batch = {}
[model]
type = "fno"
width = 32
modes = [12]
[optimizer]
type = "adamw"
lr = 1e-3
)",
                      batch)};
}

inline FieldShape lenet5_shape(int batch) {
  return {"lenet5", batch,
          fmt::format(R"([data]
type = "ready"
[data.inner]
type = "mnist"
batch = {}
[model]
type = "lenet5"
[optimizer]
type = "adamw"
lr = 1e-3
)",
                      batch)};
}

/// He et al. 2016, with the usual width, for three channels of 32 x 32 points.
inline FieldShape resnet18_shape(int batch) {
  return {"resnet18", batch,
          fmt::format(R"([data]
type = "random_images"
side = 32
batch = {}
[model]
type = "resnet"
[optimizer]
type = "sgd"
lr = 0.05
momentum = 0.9
weight_decay = 5e-4
)",
                      batch)};
}

inline std::string config_text(const FieldShape& shape, const Settings& settings) {
  return fmt::format(R"([run]
name = "bench"
steps = {}
log_every = {}
eval_batches = 1
[device]
type = "cpu"
threads = {}
[precision]
type = "fp32"
{})",
                     settings.steps, std::max(1, settings.steps / 2), settings.threads, shape.tables);
}

/// Arguments of step_fields_torch.py.
inline std::string peer_arguments(const FieldShape& shape, const Settings& settings) {
  return fmt::format("--model {} --batch {} --steps {} --threads {}", shape.peer, shape.batch, settings.steps,
                     settings.threads);
}

}  // namespace tenon::bench
