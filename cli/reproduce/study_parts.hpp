// Tables of a study file beside arms and sizes: data that is simulated before the runs, trained weights that
// are measured on other data, pairs of arms whose first losses are compared. Plain data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tenon::reproduce {

/// The table [simulate]: `tenon simulate` makes DIR/simulation, and every run uses it as data.path.
struct DataSimulation {
  std::string config;              ///< of `tenon simulate`; absolute
  std::vector<std::string> set;    ///< "a.b=c", before those of the size
  std::vector<std::string> sizes;  ///< at which there is one; empty = all
};

/// An entry of [[evaluate]]: a column of metrics of trained weights on other data.
struct OtherData {
  std::string name;
  std::string metric;              ///< "val/relative_l2"
  std::vector<std::string> set;    ///< over the configuration of the run: other data, another grid
  std::vector<std::string> arms;   ///< that are measured; empty = all
  std::vector<std::string> sizes;  ///< at which they are; empty = all
};

/// An entry of [[agree]]: the difference of two arms over their first updates.
struct AgreeingPair {
  std::string arm, with;
  std::string metric;        ///< "train/loss"
  std::int64_t updates = 0;  ///< that are compared, each of which has a line of metrics
};

/// Whether a list contains `name`; an empty one contains all names.
bool says(const std::vector<std::string>& list, const std::string& name);

}  // namespace tenon::reproduce
