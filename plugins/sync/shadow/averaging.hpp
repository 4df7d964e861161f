// Strategies without a centre: the shadow threads of all trainers average copies of their weights with each
// other and merge the result into weights that have changed since. A round has five phases, each left at one
// place, so that the actor, or a worker that must save, can complete a round in progress.
//
// No trainer leaves alone: before each round the trainers agree, by the minimum of their votes, whether all
// of them want to stop.
#pragma once

#include "shadow.hpp"

#include <tenon/host.hpp>
#include <tenon/plugin.hpp>

#include <vector>

namespace tenon::sync_shadow {

inline constexpr OptionSpec kPoll = option::real("poll", "5e-4")
                                        .at_least(1e-6)
                                        .in_unit("s")
                                        .doc_text(
                                            "shadow: how often the background checks whether the other ranks "
                                            "have arrived, on the run's clock");

class Averaging : public Shadow {
 public:
  Averaging(const char* name, const Options& options, double weight)
      : Shadow(name, options), weight_(weight), poll_(options.real("poll")) {}
  void start(Replica& replica) override;

 protected:
  bool takes_part() const override { return replica().replicas() > 1 && weight_ > 0; }
  void begin() override;
  void run_exchange(std::int64_t slot) override;
  bool step(Actor& self, bool going) override;
  void settle() override;

  /// mean_[i] holds the mean of the trainers' copied weights of arenas()[i].
  virtual void merge(std::size_t index) = 0;
  /// Makes evaluated() the model; called on all trainers with nothing in flight.
  virtual void publish() = 0;

  double weight() const { return weight_; }
  /// Keeps a copy of the mean's input, for merges that need it.
  void keep_snapshots() { snapshots_ = allocate(); }
  const TensorView& mean(std::size_t index) const { return means_[index]; }
  const TensorView& snapshot(std::size_t index) const { return snapshots_[index]; }

 private:
  enum class Phase : std::uint8_t {
    kIdle,
    kAsked,    ///< the vote to stop is in progress
    kAgreed,   ///< the round takes place
    kSent,     ///< copies are in transfer
    kArrived,  ///< the mean has arrived
  };
  static constexpr std::int64_t kPhases = 5;

  void ask_to_stop(bool stop);
  bool all_want_to_stop();
  void send();
  void start_transfers();
  void receive_piece();
  void receive();
  void merge_all();
  /// From kAgreed to kIdle.
  void complete();

  double weight_, poll_;
  Phase phase_ = Phase::kIdle;
  std::int64_t round_ = 0;
  std::int32_t stop_ = 0;
  Request vote_;
  std::vector<TensorView> pieces_;  ///< of means_, in order
  std::vector<Request> transfers_;  ///< of the started pieces
  std::size_t received_ = 0;        ///< pieces
  std::vector<TensorView> means_, snapshots_;
  std::unique_ptr<Communicator> votes_, group_;
};

}  // namespace tenon::sync_shadow
