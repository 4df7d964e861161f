// Interface `tenon.recovery.places/1`: a policy that keeps checkpoints in places beside the run's own folder,
// such as the disk of each machine. The policy says where a save goes and how many stay there; the core
// writes, checks, removes and finds them again.
#pragma once

#include <tenon/recovery.hpp>

#include <span>
#include <string_view>

TENON_ABI_BEGIN

/// A place for checkpoints. Texts live as long as the policy.
struct SavePlace {
  std::string_view name;  ///< in logs and messages: "local"
  /// Made where it is absent. A run has a folder of its own below it. A generation counts where rank 0 finds
  /// the files of all ranks; elsewhere the save is aborted.
  std::string_view folder;
  int keep = 2;  ///< complete generations, at least 2
};

/// SavePlaces::place of the run's own folder.
inline constexpr int kRunFolder = -1;

/// Offered through query(SavePlaces::kId). At a resume and a roll-back the newest generation of all places is
/// taken; of equally new ones that of the first place in the list, and that of the run's own folder last.
class SavePlaces {
 public:
  static constexpr const char* kId = "tenon.recovery.places/1";
  virtual ~SavePlaces();
  /// The same on all ranks and in every call.
  virtual std::span<const SavePlace> places() const = 0;
  /// Asked on all ranks after a plan_save that saves: an index into places(), or kRunFolder. Must be the same
  /// on all ranks. What goes to another place than the run's folder is complete. Saves that the core forces
  /// go to the run's folder and are not asked about.
  virtual int place(const SaveMoment& moment) const = 0;
};

TENON_ABI_END
