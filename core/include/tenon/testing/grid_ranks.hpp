// For tests of what lies on a model grid: its ranks as threads over the thread transport, which the registry
// finds where the environment says (TENON_PLUGIN_PATH).
#pragma once

#include <tenon/clocks.hpp>
#include <tenon/error.hpp>
#include <tenon/model_grid.hpp>
#include <tenon/testing/components.hpp>

#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

namespace tenon::testing {

class GridRanks {
 public:
  /// Around every communicator that a rank opens; for delays and faults.
  using Wrap = std::function<std::unique_ptr<Communicator>(std::unique_ptr<Communicator> inner, int rank)>;

  /// `world_ranks`: who stands at each place of the grid, row-major; empty: in order.
  explicit GridRanks(std::vector<int> extents, std::vector<int> world_ranks = {}, double deadline_s = 30)
      : extents_(std::move(extents)), members_(std::move(world_ranks)) {
    int ranks = 1;
    for (const int extent : extents_) ranks *= extent;
    if (members_.empty()) {
      members_.resize(static_cast<std::size_t>(ranks));
      std::iota(members_.begin(), members_.end(), 0);
    }
    registry_.discover({});
    transport_ = make<Transport>(registry_, host_, "thread", "");
    transport_->connect({.ranks = ranks, .deadline_s = deadline_s, .link = {}, .clock = clock_.get()});
  }

  int size() const { return static_cast<int>(members_.size()); }
  const std::vector<int>& extents() const { return extents_; }
  Transport& transport() { return *transport_; }

  /// body(grid) on every rank; what each threw, by grid index, "" for nothing.
  std::vector<std::string> run(const std::function<void(ModelGrid&)>& body, const Wrap& wrap = {}) {
    std::vector<std::string> errors(members_.size());
    std::vector<std::thread> threads;
    std::vector<int> participants;
    for (const int rank : members_)
      participants.push_back(clock_->announce(rank, 0, "rank " + std::to_string(rank)));
    for (std::size_t place = 0; place < members_.size(); ++place) {
      threads.emplace_back([&, place] {
        try {
          clock_->enter(participants[place]);
          run_rank(static_cast<int>(place), body, wrap);
        } catch (const Error& error) {
          errors[place] = error.what();
        }
        clock_->leave();
      });
    }
    for (std::thread& thread : threads) thread.join();
    return errors;
  }

 private:
  std::unique_ptr<Communicator> open(int place, const std::vector<int>& places, const std::string& name,
                                     const Wrap& wrap) {
    std::vector<int> ranks;
    for (const int member : places) ranks.push_back(members_[static_cast<std::size_t>(member)]);
    const int self = members_[static_cast<std::size_t>(place)];
    auto end = transport_->open(self, {.ranks = ranks, .name = name, .purpose = Purpose::kModel});
    return wrap ? wrap(std::move(end), self) : std::move(end);
  }

  void run_rank(int place, const std::function<void(ModelGrid&)>& body, const Wrap& wrap) {
    std::vector<std::unique_ptr<Communicator>> ends;
    std::vector<Communicator*> axes;
    std::vector<int> all(members_.size());
    std::iota(all.begin(), all.end(), 0);
    if (size() > 1) ends.push_back(open(place, all, "model", wrap));
    Communicator* model = ends.empty() ? nullptr : ends.front().get();
    for (std::size_t axis = 0; axis < extents_.size(); ++axis) {
      axes.push_back(nullptr);
      if (extents_[axis] == 1) continue;
      std::vector<int> places, along = grid_coordinates(place, extents_);
      for (along[axis] = 0; along[axis] < extents_[axis]; ++along[axis])
        places.push_back(grid_index(along, extents_));
      ends.push_back(open(place, places, "axis" + std::to_string(axis), wrap));
      axes.back() = ends.back().get();
    }
    ModelGrid grid(extents_, place, model, axes);
    body(grid);
  }

  std::vector<int> extents_, members_;
  QuietHost host_;
  Registry registry_;
  std::unique_ptr<Clock> clock_ = make_wall_clock();
  Made<Transport> transport_;
};

}  // namespace tenon::testing
