// Drift of the replicas just before a synchronisation round, if requested (option `drift`). Records
// "replica_drift", |x_k - mean(x)| / |mean(x)| of each replica, and "replica_spread", the largest difference
// between two replicas in one weight. Costs three all-reduces of the weights, counted as statistics.
#pragma once

#include <tenon/options.hpp>
#include <tenon/sync.hpp>

#include <vector>

namespace tenon::sync_local {

inline constexpr OptionSpec kDrift = option::boolean("drift", "false")
                                         .doc_text(
                                             "record how far apart replicas are before each meeting; sends "
                                             "three times what a meeting of local_sgd sends");

class Drift {
 public:
  /// Allocates two copies of the largest of these arenas.
  Drift(Replica& replica, std::vector<int> arenas);
  ~Drift();
  Drift(const Drift&) = delete;
  Drift& operator=(const Drift&) = delete;
  /// Collective.
  void measure();

 private:
  TensorView scratch(int index, const TensorView& like) const;

  Replica& replica_;
  std::vector<int> arenas_;
  std::size_t bytes_ = 0;
  void* room_[2] = {nullptr, nullptr};
};

}  // namespace tenon::sync_local
