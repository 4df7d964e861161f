#include "record/checkpoint_places.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <random>
#include <set>
#include <utility>

namespace tenon {
namespace {

constexpr const char* kIdFile = "run_id";
constexpr std::size_t kIdDigits = 32;
/// For people: which run a folder of a place belongs to.
constexpr const char* kRunFile = "RUN";

bool is_id(std::string_view text) {
  return text.size() == kIdDigits && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::string id_in(FileSystem& files, const std::string& path) {
  if (!files.exists(path)) return "";
  try {
    const std::string text = read_text(files, path, kIdDigits + 1);
    if (text.size() == kIdDigits + 1 && text.back() == '\n') return text.substr(0, kIdDigits);
  } catch (const FileError&) {
    // A longer file is as good as none.
  }
  return "";
}

/// Several processes may do so at once, with one text.
void tell_run(FileSystem& files, const std::string& path, const std::string& run) {
  if (files.exists(path)) return;
  const std::unique_ptr<WritableFile> file = files.create(path);
  file->append(std::as_bytes(std::span(run)));
  file->close();
}

}  // namespace

std::string rejected_text(const RejectedGeneration& rejected, std::string_view why) {
  if (rejected.step < 0)
    return fmt::format("the checkpoints in {} cannot be read and count as absent: {}", rejected.path,
                       rejected.reason);
  return fmt::format("checkpoint of slot {} {} and was put aside as {}: {}", rejected.step, why,
                     rejected.path, rejected.reason);
}

void require_writable(FileSystem& files, std::span<const PlaceSpec> places) {
  std::random_device random;  // processes of several machines may share a folder, and have one id
  for (const PlaceSpec& place : places) {
    const std::string path = fmt::format("{}/.tenon-{:08x}{:08x}", place.folder, random(), random());
    try {
      files.make_directories(place.folder);
      files.create(path)->close();
      files.remove(path);
    } catch (const FileError& error) {
      fail_config(fmt::format(
          "recovery: checkpoints of place '{}' cannot be kept in {}: {}. Nothing was trained; make the "
          "folder writable, or choose another",
          place.name, place.folder, error.what()));
    }
  }
}

std::string run_owner(FileSystem& files, const std::string& attempt) {
  const std::string path = attempt + "/" + kIdFile;
  std::string id = id_in(files, path);
  if (!is_id(id)) {
    std::random_device random;
    id = fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
    files.write_text_atomically(path, id + "\n");
  }
  const std::string text = id + "\n" + std::filesystem::weakly_canonical(attempt).string();
  return xxh3_128_of(std::as_bytes(std::span(text)));
}

CheckpointPlaces::CheckpointPlaces(FileSystem& files, CheckpointStore& own, std::span<const PlaceSpec> beside,
                                   const std::string& owner, const std::function<void(const char*)>& hook)
    : own_(own) {
  for (const PlaceSpec& place : beside) {
    const std::string folder = place.folder + "/" + owner;
    files.make_directories(folder);
    tell_run(files, folder + "/" + kRunFile, own.folder() + "\n");
    StoreOptions options;
    options.keep = place.keep;
    options.hook = hook;
    options.owner = owner;
    names_.push_back(place.name);
    stores_.push_back(std::make_unique<CheckpointStore>(files, folder, options));
  }
}

int CheckpointPlaces::index(std::string_view name) const {
  const auto found = std::ranges::find(names_, name);
  return found == names_.end() ? kRunFolder : static_cast<int>(found - names_.begin());
}

std::string CheckpointPlaces::where(int place) const {
  return place == kRunFolder ? "" : fmt::format(" in {}", names_[place]);
}

std::vector<std::int64_t> CheckpointPlaces::generations(int place) const {
  if (place == kRunFolder) return own_.generations();
  try {
    return stores_[place]->generations();
  } catch (const FileError&) {
    return {};
  }
}

std::vector<std::int64_t> CheckpointPlaces::generations() const {
  std::vector<std::int64_t> all = own_.generations();
  for (int place = 0; place < count(); ++place) {
    const std::vector<std::int64_t> more = generations(place);
    all.insert(all.end(), more.begin(), more.end());
  }
  std::ranges::sort(all);
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

int CheckpointPlaces::place_of(std::int64_t step) const {
  for (int place = 0; place < count(); ++place) {
    const std::vector<std::int64_t> steps = generations(place);
    if (std::ranges::binary_search(steps, step)) return place;
  }
  return kRunFolder;
}

// A place is read only where its newest generation may be the one to go on from: reading checks every byte.
// What takes the place of a generation that was put aside is no newer than that, so all places are looked at
// anew.
PlacedPoint CheckpointPlaces::recover(bool consistent_only, std::int64_t most) {
  PlacedPoint found;
  std::set<int> lost;
  const auto unreadable = [&](int place, const FileError& error) {
    if (place == kRunFolder) throw;
    found.rejected.push_back({-1, error.what(), at(place).folder()});
    lost.insert(place);
  };
  for (int place = kRunFolder; place < count(); ++place) at(place).tidy();
  for (;;) {
    std::optional<GenerationAge> best;
    int from = kRunFolder;
    for (int i = 0; i <= count(); ++i) {
      const int place = i < count() ? i : kRunFolder;
      if (lost.contains(place)) continue;
      try {
        const std::optional<GenerationAge> newest = at(place).newest(consistent_only, most);
        if (!newest || (best && !(*best < *newest))) continue;
        best = newest;
        from = place;
      } catch (const FileError& error) {
        unreadable(place, error);
      }
    }
    if (!best) return found;
    try {
      const RestorePoint point = at(from).recover(consistent_only, most);
      if (point.rejected.empty()) {
        found.place = from;
        found.step = point.step;
        return found;
      }
      // One without a sound manifest was looked at first whatever its age, and says nothing about the others.
      const bool sound = best->timeline < std::numeric_limits<std::int64_t>::max();
      for (const RejectedGeneration& bad : point.rejected) {
        found.rejected.push_back(bad);
        if (sound && bad.because < 0) most = std::min(most, bad.step);
      }
    } catch (const FileError& error) {
      unreadable(from, error);
    }
  }
}

}  // namespace tenon
