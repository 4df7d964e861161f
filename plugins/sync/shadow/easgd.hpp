// Sync `shadow_easgd`: S-EASGD, and its foreground counterpart FR-EASGD-k (Zheng et al. 2020; Zhang,
// Choromanska & LeCun 2015). Each trainer exchanges with a centre on servers, alone, shard by shard: S bytes
// up and S bytes down for S bytes of weights.
#pragma once

#include "center_server.hpp"
#include "shadow.hpp"

#include <tenon/plugin.hpp>
#include <tenon/sdk/fixed_order.hpp>
#include <tenon/state.hpp>

#include <deque>
#include <optional>

namespace tenon::sync_shadow {

inline constexpr const char* kExchanges[] = {"symmetric", "sequential", "delta", nullptr};

class ShadowEasgd final : public Shadow {
 public:
  static constexpr OptionSpec kOptions[] = {
      kMode,
      kInterval,
      kAt,
      kRest,
      kPiece,
      kLock,
      option::real("elastic", "0.5")
          .between(0, 1)
          .doc_text("a, the fraction of their difference by which trainer and centre move; 0: nothing is "
                    "exchanged"),
      option::text("exchange", "'symmetric'")
          .one_of(kExchanges)
          .doc_text("symmetric: both move by a (w - c); sequential: the centre moves first, then the trainer "
                    "towards its new value; delta: the trainer fetches c and sends a (w - c), and trains a "
                    "slot before it moves"),
      option::integers("order", "[]")
          .at_least(0)
          .doc_text("foreground and stepped: trainers take turns in this order, which lists all of them; "
                    "empty: foreground trainers in the order of arrival, stepped ones by number"),
  };
  static constexpr ComponentInfo kInfo{
      .id = "shadow_easgd",
      .summary = "elastic averaging with a centre on servers, in the background",
      .options = kOptions,
      .capabilities = TENON_CAP_HOST | TENON_CAP_NONDETERMINISTIC | TENON_CAP_HOGWILD};
  static constexpr Identity kIdentities[] = {
      {.why = "replicas that no spring pulls train alone",
       .options = "elastic = 0.0",
       .other = "type = 'none'"},
      {.why = "whether a worker exchanges itself or waits for the background, the history is one",
       .options = "mode = 'stepped'\ninterval = 3",
       .other = "type = 'shadow_easgd'\nmode = 'foreground'\ninterval = 3\norder = [0, 1]",
       .given = "parallel.ranks = 2\nparallel.servers = 1\nparallel.workers = 1"},
  };
  explicit ShadowEasgd(const Options& options);
  ~ShadowEasgd() override;

  /// Throws Error(kConfig) for several trainers without a server.
  void start(Replica& replica) override;
  void state(StateVisitor& visitor) override;
  void* query(std::string_view interface_id) override;

 protected:
  std::span<const Identity> identities() const override { return kIdentities; }
  bool takes_part() const override { return replica().replicas() > 1 && elastic_ > 0; }
  ParameterSet& evaluated() const override { return *center_; }
  void begin() override;
  void run_exchange(std::int64_t slot) override;
  void between(std::int64_t slot) override;
  bool step(Actor& self, bool going) override;
  void settle() override;

 private:
  enum class Exchange : std::uint8_t { kSymmetric, kSequential, kDelta };

  void check_order();
  ElementRange shard(std::size_t index, std::size_t server) const;
  /// Exchanges all arenas with all servers.
  void exchange();
  /// Exchanges `part` of `whole`, the shard of this server.
  void exchange_part(std::size_t index, std::size_t server, const ElementRange& part,
                     const ElementRange& whole);
  /// Applies the exchanged data in staging_, which are due until any thread applies them.
  void apply();
  void ask(Pair& pair, Ask request, std::size_t index, const ElementRange& part, const ElementRange& whole);
  void answered(Pair& pair);
  void move_by_elastic();

  Exchange exchange_ = Exchange::kSymmetric;
  double elastic_;
  std::vector<std::int64_t> order_;
  std::deque<Pair> pairs_;  ///< by server
  std::unique_ptr<Communicator> turns_;
  ParameterSet* center_ = nullptr;
  ParameterSet* elastic_force_ = nullptr;  ///< delta outside the background: pending change of the weights
  std::atomic<std::int64_t> force_due_{0};
  std::vector<TensorView> staging_;  ///< per arena of arenas()
  struct Arrived {
    std::size_t index = 0;
    ElementRange range;
  };
  std::optional<Arrived> arrived_;
  CenterServer server_;  ///< of the component on a server rank
};

}  // namespace tenon::sync_shadow
