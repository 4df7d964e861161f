// Counting of ledger.hpp.
#include "ledger.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace tenon::mor {
namespace {

/// Sums over tensors, or over elements.
struct Share {
  std::int64_t low = 0, all = 0;
  void add(const std::array<std::int64_t, kChoices>& units) {
    const std::int64_t sum = std::accumulate(units.begin(), units.end(), std::int64_t{0});
    low += sum - units[0];
    all += sum;
  }
  double value() const { return all == 0 ? 0.0 : static_cast<double>(low) / static_cast<double>(all); }
};

}  // namespace

Decisions::Decisions(SiteHost& host)
    : device_(host.device()),
      units_(host.state("decisions", DType::kI64, Shape{kUses, kChoices})),
      errors_(host.state("errors", DType::kF64, Shape{kUses, 2})) {}

void Decisions::add(Use use, const Verdict& verdict) {
  const std::size_t row = index_of(use);
  auto* const units = units_here_.read(device_, units_).as<std::int64_t>() + row * kChoices;
  for (std::size_t choice = 0; choice < kChoices; ++choice) units[choice] += verdict.units[choice];
  units_here_.write(device_, units_);
  if (verdict.choice == kNvfp4) return;
  double* const errors = errors_here_.read(device_, errors_).as<double>() + 2 * row;
  errors[0] += verdict.decision.error;
  errors[1] += 1;
  errors_here_.write(device_, errors_);
}

std::array<std::int64_t, kChoices> Decisions::units(Use use) const {
  HostStage here;
  std::array<std::int64_t, kChoices> result;
  std::copy_n(here.read(device_, units_).as<std::int64_t>() + index_of(use) * kChoices, kChoices,
              result.begin());
  return result;
}

double Decisions::mean_error(Use use) const {
  HostStage here;
  const double* row = here.read(device_, errors_).as<double>() + 2 * index_of(use);
  return row[1] == 0 ? 0.0 : row[0] / row[1];
}

void Ledger::add(std::string name, const Decisions* decisions) {
  const std::lock_guard lock(mutex_);
  entries_.push_back({std::move(name), decisions});
}

void Ledger::remove(const Decisions* decisions) {
  const std::lock_guard lock(mutex_);
  std::erase_if(entries_, [decisions](const Entry& entry) { return entry.decisions == decisions; });
}

void Ledger::metrics(const std::function<void(std::string_view, double)>& sink) const {
  const std::lock_guard lock(mutex_);
  Share all, x, w, dy;
  for (const Entry& entry : entries_) {
    for (int u = 0; u < kUses; ++u) {
      const Use use = static_cast<Use>(u);
      const auto units = entry.decisions->units(use);
      Share own;
      own.add(units);
      if (own.all == 0) continue;
      const std::string name = fmt::format("mor/{}/{}.{}", entry.name, gemm_of(use), operand_of(use));
      sink(name, own.value());
      sink(name + "/error", entry.decisions->mean_error(use));
      all.add(units);
      (is_weight(use) ? w : is_gradient(use) ? dy : x).add(units);
    }
  }
  if (all.all == 0) return;
  sink("mor/share", all.value());
  sink("mor/share/x", x.value());
  sink("mor/share/w", w.value());
  sink("mor/share/dy", dy.value());
}

}  // namespace tenon::mor
