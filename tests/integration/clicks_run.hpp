// A run with row tables for the tests of whole runs.
#pragma once

#include "run_program.hpp"

#include <string>

namespace tenon::integration {

/// A DLRM on UCI Adult, 24 slots of 96 samples for any number of replicas.
inline constexpr const char* kClicks = R"([run]
name = "tiny"
steps = 24
log_every = 4
eval_every = 12

[device]
type = "cpu"
threads = 1

[transport]
type = "thread"

[data]
type = "adult"
path = "{source}/data/adult/adult.data"
test_path = "{source}/data/adult/adult.test"
buckets = 8

[model]
type = "dlrm"
bottom = [16, 8]
top = [16, 1]

[optimizer]
type = "rowwise_adagrad"
lr = 0.02

[sync]
type = "ddp"

[recovery]
type = "full"
every = 6
async = false

[[observe]]
type = "tables"
)";

inline std::string clicks_run() {
  return replaced(kClicks, "{source}", TENON_SOURCE_DIR);
}

}  // namespace tenon::integration
