// The DLRM that the step benchmarks train: its configuration and the arguments of its peer.
#pragma once

#include "step_bench.hpp"

namespace tenon::bench {

struct DlrmShape {
  int tables = 26, rows = 100000, dense = 13, batch = 2048;
  double exponent = 1.2;  ///< of the power law of accesses
  const char *bottom = "512,256,64,16", *top = "512,256,1";
  const char* optimizer = "sgd\"\nlr = 0.1";
  int ready = 8;  ///< batches that are ready in memory
};

/// For the data set `ready`; precision: fp32 or bf16.
inline std::string config_text(const DlrmShape& shape, const std::string& precision,
                               const Settings& settings) {
  return fmt::format(R"([run]
name = "bench"
steps = {}
log_every = {}
eval_batches = 1
[device]
type = "cpu"
threads = {}
[data]
type = "ready"
batches = {}
[data.inner]
type = "synthetic_ctr"
tables = {}
rows = [{}]
dense = {}
exponent = {}
batch = {}
val_samples = {}
[model]
type = "dlrm"
bottom = [{}]
top = [{}]
[precision]
type = "{}"
[optimizer]
type = "{}
)",
                     settings.steps, std::max(1, settings.steps / 2), settings.threads, shape.ready,
                     shape.tables, shape.rows, shape.dense, shape.exponent, shape.batch, shape.batch,
                     shape.bottom, shape.top, precision, shape.optimizer);
}

/// Arguments of step_dlrm_torch.py.
inline std::string peer_arguments(const DlrmShape& shape, const std::string& precision,
                                  const Settings& settings) {
  return fmt::format(
      "--precision {} --steps {} --threads {} --tables {} --rows {} --dense {} --batch {} --exponent {} "
      "--bottom {} "
      "--top {}",
      precision, settings.steps, settings.threads, shape.tables, shape.rows, shape.dense, shape.batch,
      shape.exponent, shape.bottom, shape.top);
}

}  // namespace tenon::bench
