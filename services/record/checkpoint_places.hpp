// Stores of a run's checkpoints: its own folder, and the places that the recovery policy keeps beside it.
// They are told apart from those of other runs, and searched together for the generation to go on from.
#pragma once

#include <tenon/checkpoint.hpp>
#include <tenon/files.hpp>
#include <tenon/save_places.hpp>

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon {

/// A SavePlace that outlives its policy.
struct PlaceSpec {
  std::string name, folder;
  int keep = 2;
};

/// Where the generations of a run may lie, and how many stay.
struct KeptPlaces {
  int keep = 0;  ///< in the run's folder; 0 = nothing is saved
  std::vector<PlaceSpec> beside;
};

/// The generation to go on from. `rejected` has those of all places that were looked at.
struct PlacedPoint {
  int place = kRunFolder;
  std::int64_t step = -1;  ///< -1: there is nothing to restore
  std::vector<RejectedGeneration> rejected;
};

/// "checkpoint of slot 40 is damaged and was put aside as ...: ..."
std::string rejected_text(const RejectedGeneration& rejected, std::string_view why = "is damaged");

/// Makes the folders of `places` and tries to write there. Throws Error(kConfig) that names place and folder.
void require_writable(FileSystem& files, std::span<const PlaceSpec> places);

/// Name of an attempt that no other has, for generations outside of its folder: 32 hexadecimal digits of the
/// number in its file `run_id`, made where it is absent or damaged, and of its path. A copy of the folder is
/// another run.
std::string run_owner(FileSystem& files, const std::string& attempt);

class CheckpointPlaces {
 public:
  /// `own`: the store in the run's folder. It and `files` outlive this. `hook` as in StoreOptions.
  CheckpointPlaces(FileSystem& files, CheckpointStore& own, std::span<const PlaceSpec> beside,
                   const std::string& owner, const std::function<void(const char*)>& hook);

  /// Places beside the run's folder.
  int count() const { return static_cast<int>(stores_.size()); }
  CheckpointStore& at(int place) const { return place == kRunFolder ? own_ : *stores_[place]; }
  /// "" of the run's folder.
  std::string_view name(int place) const {
    return place == kRunFolder ? std::string_view() : std::string_view(names_[place]);
  }
  /// Inverse of name().
  int index(std::string_view name) const;
  /// " in local"; "" of the run's folder.
  std::string where(int place) const;

  /// Rank 0, while no rank saves: CheckpointStore::recover over all places, newest first, and of equally new
  /// generations that of the first place. A place beside the run's folder that cannot be read counts as
  /// empty, which `rejected` says.
  PlacedPoint recover(bool consistent_only, std::int64_t most = std::numeric_limits<std::int64_t>::max());
  /// The first place with a generation of this step; the run's folder where there is none.
  int place_of(std::int64_t step) const;
  /// Steps of the generations in all places, ascending, none of them checked.
  std::vector<std::int64_t> generations() const;

 private:
  std::vector<std::int64_t> generations(int place) const;

  CheckpointStore& own_;
  std::vector<std::string> names_;
  std::vector<std::unique_ptr<CheckpointStore>> stores_;
};

}  // namespace tenon
