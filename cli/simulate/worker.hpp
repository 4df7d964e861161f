// A worker process: reads tasks from its standard input until that ends, and writes samples into the folder
// of a simulation. It knows no other worker.
#pragma once

#include <string>
#include <vector>

namespace tenon::simulate {

/// Descriptor of the answers; standard output belongs to plugins.
inline constexpr int kAnswerDescriptor = 3;

struct WorkerSpec {
  std::string folder;
  double task_timeout_s = 3600;
  std::vector<std::string> plugin_paths;
};

/// The arguments that start it: `tenon simulate --serve ...`.
std::vector<std::string> worker_arguments(const WorkerSpec& spec);
/// Returns whether these are such arguments, as they follow `simulate`.
bool is_worker(const std::vector<std::string>& arguments);
/// Returns the exit status. It ends with its parent.
int serve(const std::vector<std::string>& arguments);

}  // namespace tenon::simulate
