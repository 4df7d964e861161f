// Sync `sparse`: replicas train alone, and every `interval` slots each sends the largest elements of what it
// has moved since the last round (a pseudo-gradient), with their places. All move the anchor by the mean of
// what was sent and continue from there; what was not sent stays in a residual and is added next time (error
// feedback, Stich et al. 2018). With K replicas a round sends (K - 1) (4 + bytes of an element) per element
// sent and replica.
#include <tenon/error.hpp>
#include <tenon/optimizer.hpp>
#include <tenon/plugin.hpp>
#include <tenon/sync_extra.hpp>
#include <tenon/tensor_values.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

namespace {

class Sparse final : public tenon::SyncBase {
 public:
  static constexpr tenon::OptionSpec kOptions[] = {
      tenon::option::integer("interval", "16")
          .at_least(1)
          .in_unit("slots")
          .doc_text("from one round to the next"),
      tenon::option::real("share", "0.05").between(1e-6, 1).doc_text("of the elements that a round sends"),
      tenon::option::real("outer_lr", "1").between(0, 10).doc_text("times the mean that was sent"),
  };
  static constexpr tenon::ComponentInfo kInfo{
      .id = "sparse",
      .summary = "largest elements of pseudo-gradients every few slots, with error feedback",
      .options = kOptions,
      .capabilities = TENON_CAP_HOST};

  explicit Sparse(const tenon::Options& options)
      : interval_(options.integer("interval")),
        share_(options.real("share")),
        outer_lr_(options.real("outer_lr")) {}

  void start(tenon::Replica& replica) override {
    SyncBase::start(replica);
    tenon::refuse_copied_tables(replica, "sparse");
    group_ = replica.group(tenon::Purpose::kParameter);
    anchor_ = &replica.create_set("anchor");
    residual_ = &replica.create_set("residual");
    replica.copy(replica.live(), *anchor_);
    std::size_t longest = 0;
    for (const tenon::ParameterInfo& info : replica.live().parameters()) {
      if (info.arena < 0 || info.spec.role != tenon::Role::kParameter || !info.spec.trainable) continue;
      if (std::find(arenas_.begin(), arenas_.end(), info.arena) != arenas_.end()) continue;
      arenas_.push_back(info.arena);
      longest = std::max(longest, reals(replica.live(), info.arena).raw().size() / sizeof(float));
    }
    if (longest > std::numeric_limits<std::int32_t>::max())
      tenon::fail_config("sync sparse numbers elements in 32 bits; this model has more");
    order_.resize(longest);
    places_.resize(members() * kept(longest));
    values_.resize(members() * kept(longest) * sizeof(double));
  }

  std::int64_t first_round() const override { return interval_; }
  tenon::ParameterSet& evaluation_parameters() override {
    return group_ == nullptr ? replica().live() : *anchor_;
  }

  /// Runs also after a refused update, so that all replicas take part.
  void after_step(const tenon::Slot& slot, const tenon::StepOutcome&) override {
    if (group_ == nullptr || (slot.t + 1) % interval_ != 0) return;
    for (const int arena : arenas_) {
      if (reals(replica().live(), arena).dtype == tenon::DType::kF64)
        exchange<double>(arena);
      else
        exchange<float>(arena);
    }
    replica().live().touch(-1);
    residual_->touch(-1);
    replica().sync_buffers();
    replica().copy(replica().live(), *anchor_);
  }

 private:
  static tenon::TensorView reals(const tenon::ParameterSet& set, int arena) {
    return tenon::flat_reals(set.arena(arena));
  }
  std::size_t members() const { return group_ == nullptr ? 1 : static_cast<std::size_t>(group_->size()); }
  std::size_t kept(std::size_t elements) const {
    return std::max<std::size_t>(1,
                                 static_cast<std::size_t>(std::ceil(share_ * static_cast<double>(elements))));
  }

  template <typename Real>
  void exchange(int arena) {
    const std::span<Real> live = reals(replica().live(), arena).span<Real>();
    const std::span<Real> anchor = reals(*anchor_, arena).span<Real>();
    const std::span<Real> unsent = reals(*residual_, arena).span<Real>();
    for (std::size_t i = 0; i < live.size(); ++i) unsent[i] += anchor[i] - live[i];

    // The largest, of equal ones the first: an order that every machine finds.
    const std::span<std::int32_t> order(order_.data(), live.size());
    std::iota(order.begin(), order.end(), 0);
    const auto size = [&](std::int32_t i) {
      const Real magnitude = std::abs(unsent[static_cast<std::size_t>(i)]);
      return magnitude >= 0 ? magnitude : std::numeric_limits<Real>::infinity();  // a NaN is sent, too
    };
    const std::size_t count = std::min(kept(live.size()), live.size());
    std::nth_element(
        order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count - 1), order.end(),
        [&](std::int32_t a, std::int32_t b) { return size(a) != size(b) ? size(a) > size(b) : a < b; });

    const std::span<Real> values(reinterpret_cast<Real*>(values_.data()), members() * count);
    const std::size_t mine = static_cast<std::size_t>(group_->rank()) * count;
    for (std::size_t i = 0; i < count; ++i) {
      Real& value = unsent[static_cast<std::size_t>(order[i])];
      places_[mine + i] = order[i];
      values[mine + i] = value;
      value = 0;
    }
    const tenon::Shape rows{static_cast<std::int64_t>(members()), static_cast<std::int64_t>(count)};
    group_->all_gather({places_.data(), rows, tenon::DType::kI32});
    group_->all_gather({values.data(), rows, sizeof(Real) == 8 ? tenon::DType::kF64 : tenon::DType::kF32});
    std::copy(anchor.begin(), anchor.end(), live.begin());
    const Real factor = static_cast<Real>(outer_lr_ / static_cast<double>(members()));
    for (std::size_t i = 0; i < values.size(); ++i)
      live[static_cast<std::size_t>(places_[i])] -= factor * values[i];
  }

  std::int64_t interval_;
  double share_, outer_lr_;
  tenon::Communicator* group_ = nullptr;  // null with one replica
  tenon::ParameterSet *anchor_ = nullptr, *residual_ = nullptr;
  std::vector<int> arenas_;
  std::vector<std::int32_t> order_, places_;
  std::vector<std::byte> values_;
};

}  // namespace

TENON_PLUGIN(tenon::PluginInfo{.id = "author.sparse",
                               .version = "0.1.0",
                               .summary = "sparse pseudo-gradients",
                               .vendor = "author"},
             Sparse)
