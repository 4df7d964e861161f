// The file conformance.toml beside a plugin: options and inputs with which components are tested, and checks
// that do not apply to them. Without the file every component is made with its defaults. Paths in its options
// are relative to its folder.
//
//   [conformance]
//   plugins = ["../needed/build/needed.so"]   # files, or folders of them, that the components need
//
//   [[case]]
//   component = "layer.conv2d"                # kind.id
//   name = "stride 2"                         # free text
//   options = {channels = 4, kernel = 3, stride = 2}
//   # of a layer; the first extent is the batch
//   inputs = [{shape = [2, 3, 8, 8]}, {shape = [2], dtype = "i32", below = 10}]
//   set = ["run.steps=4"]                     # of whole runs, words as for --set
//   # of a reward; sample is the line of the prompt
//   samples = [{prompt = "1 + 1 =", answer = "2", sample = {answer = "2"}}]
//
//   [[suppress]]
//   check = "layer.allocates_*"               # a pattern
//   component = "layer.conv2d"                # optional
//   reason = "the library allocates in every call"
#pragma once

#include <tenon/config.hpp>
#include <tenon/tensor.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace tenon::conformance {

/// An input of a layer: normal numbers, whole numbers in [0, below), or the output of a loss of real numbers.
struct Input {
  std::vector<std::int64_t> shape;
  bool real = true;  ///< in the dtype of the activations; else i32
  std::int64_t below = 2;
  bool loss = false;  ///< a loss node reads the numbers, and the layer reads the node
};

/// A sample of a reward.
struct RewardCase {
  std::string prompt, answer;
  Value sample;  ///< a table
};

struct Case {
  std::string component;  ///< "layer.conv2d"
  std::string name;       ///< "" = the defaults
  Value options;          ///< a table without `type`
  std::vector<Input> inputs;
  std::vector<std::string> sets;
  std::vector<RewardCase> samples = {};
};

struct Suppression {
  std::string check, component, reason;
};

struct CaseFile {
  std::vector<std::string>
      plugins;  ///< other plugins that the components need: absolute paths of files or folders
  std::vector<Case> cases;
  std::vector<Suppression> suppressions;
};

/// With an empty `path` there are no entries. Throws Error(kConfig).
CaseFile read_case_file(const std::string& path);

/// Texts that begin with "SCRATCH/" name files in the folder of the check.
void put_scratch(Value& options, const std::string& scratch);

/// Returns the cases of a component; one with its defaults when the file has none.
std::vector<Case> cases_of(const CaseFile& file, const std::string& component);
/// Returns the reason why a check of a component is suppressed, or null.
const std::string* suppressed(const CaseFile& file, const std::string& check, const std::string& component);

}  // namespace tenon::conformance
