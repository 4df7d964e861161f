// keep_worst: in one slot every site measures the rounding error of its weight, and from the next slot on the
// worst sites run in bf16. The decision depends on the weights alone, so replicas with equal weights make the
// same one; it is saved with the run.
#pragma once

#include "site.hpp"

#include <tenon/state.hpp>

#include <string>
#include <vector>

namespace tenon::quantized {

class KeepWorst final : public SiteWatch {
 public:
  KeepWorst(double fraction, std::int64_t slot) : fraction_(fraction), slot_(slot) {}

  bool active() const { return fraction_ > 0; }
  /// Returns the number of a site; the same for the same layer and site in another executor.
  int add(std::string_view layer, int site);
  /// Ends a slot: decides once its sites have measured.
  void end_slot(std::int64_t slot);
  void state(StateVisitor& visitor);

  bool kept(int handle) const override { return sites_[static_cast<std::size_t>(handle)].kept; }
  bool measures(std::int64_t slot) const override { return active() && !decided_ && slot >= slot_; }
  void measured(int handle, double error) override { sites_[static_cast<std::size_t>(handle)].error = error; }

 private:
  struct Entry {
    std::string name;
    double error = -1;  ///< noise / signal; -1: not measured
    bool kept = false;
  };
  void apply(const std::string& names);

  double fraction_;
  std::int64_t slot_;
  bool decided_ = false;
  std::string names_;  ///< names of the kept sites, each followed by ';'
  std::vector<Entry> sites_;
};

}  // namespace tenon::quantized
