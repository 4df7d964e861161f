// The protocol of launched.hpp over files.
#include "simulate/launched.hpp"

#include "base/elapsed.hpp"
#include "simulate/sample_writer.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <random>
#include <sstream>
#include <thread>

namespace tenon::simulate {
namespace {

using Steady = std::chrono::steady_clock;
constexpr std::chrono::seconds kBetweenLooks{2};
constexpr std::int64_t kMostBytes = std::int64_t{1} << 30;
constexpr std::chrono::milliseconds kPoll{100};

std::string nodes_folder(const std::string& folder) {
  return folder + "/nodes";
}
std::string open_path(const std::string& folder) {
  return nodes_folder(folder) + "/open";
}
std::string end_path(const std::string& folder, std::int64_t index) {
  return fmt::format("{}/{}.end", nodes_folder(folder), index);
}

constexpr const char* kStop = " stop";
/// Start of the file of process 0; a count of its beats follows.
std::string opened_for(const SimulationManifest& manifest) {
  return fmt::format("{} {} ", manifest.config_hash(), manifest.samples);
}

std::string token_path(const std::string& folder, std::int64_t index) {
  return fmt::format("{}/{}.token", nodes_folder(folder), index);
}

/// "" if there is none, or if it cannot be read at the moment.
std::string text_of(FileSystem& files, const std::string& path) {
  try {
    return files.exists(path) ? read_text(files, path, kMostBytes) : "";
  } catch (const FileError&) {
    return "";
  }
}

}  // namespace

std::string node_end_text(const NodeEnd& end) {
  return fmt::format("{} {} {} {} {}\n", end.lost_workers, end.repeated, end.workers, end.busy_s,
                     end.cut_short.empty() ? "completed" : end.cut_short);
}

NodeEnd parse_node_end(const std::string& text, const std::string& path) {
  NodeEnd end;
  std::istringstream in(text);
  std::string rest;
  if (!(in >> end.lost_workers >> end.repeated >> end.workers >> end.busy_s) ||
      !std::getline(in >> std::ws, rest) || end.lost_workers < 0 || end.repeated < 0 || end.workers < 0 ||
      !(end.busy_s >= 0) || rest.empty())
    fail_run(fmt::format("'{}': expected four numbers and how a process ended, found '{}'", path, text));
  end.cut_short = rest == "completed" ? "" : rest;
  return end;
}

bool Pulse::beats() {
  const std::string now = text_of(files_, path_);
  if (!asked_) {
    asked_ = true, last_ = now, changed_ = Steady::now();
  } else if (now != last_ && !now.empty()) {
    beat_ = true, last_ = now, changed_ = Steady::now();
  }
  return beat_;
}

double Pulse::silent_s() {
  beats();
  return base::seconds_since(changed_);
}

std::string node_manifest_path(const std::string& folder, std::int64_t index) {
  return fmt::format("{}/{}.json", nodes_folder(folder), index);
}

std::string node_beat_path(const std::string& folder, std::int64_t index) {
  return fmt::format("{}/{}.beat", nodes_folder(folder), index);
}

Owner::Owner(FileSystem& files, ResultFolder& folder, Place place, double patience_s)
    : files_(files), folder_(folder), place_(place), patience_s_(patience_s) {
  remove_tree(files_, nodes_folder(folder_.path()));
  files_.make_directories(nodes_folder(folder_.path()));
  for (std::int64_t i = 1; i < place_.count; ++i)
    nodes_.emplace(i, Node{Pulse(files_, node_beat_path(folder_.path(), i))});
  look(true);
}

Owner::~Owner() {
  try {
    remove_tree(files_, nodes_folder(folder_.path()));
  } catch (const Error&) {
    // The next launch removes it.
  }
}

void Owner::look(bool now, bool go_on) {
  if (!now && Steady::now() - looked_ < kBetweenLooks) return;
  SimulationManifest& all = folder_.manifest();
  std::string named;
  for (auto& [index, node] : nodes_) {
    if (node.token.empty()) node.token = text_of(files_, token_path(folder_.path(), index));
    if (!node.token.empty()) named += " " + node.token;
  }
  files_.write_text_atomically(open_path(folder_.path()),
                               fmt::format("{}{}{}{}", opened_for(all), ++beats_, named, go_on ? "" : kStop));
  for (const auto& [index, node] : nodes_) {
    const std::string path = node_manifest_path(folder_.path(), index), text = text_of(files_, path);
    if (text.empty()) continue;
    SimulationManifest theirs = parse_simulation_manifest(text, path);
    all.finished.merge(theirs.finished);
    for (auto& [sample, failure] : theirs.failed)
      if (all.finished.count(sample) == 0) all.failed[sample] = std::move(failure);
  }
  folder_.save(now);
  looked_ = Steady::now();
}

NodeEnd Owner::wait(const std::function<bool()>& wanted) {
  NodeEnd all;
  bool go_on = true;
  for (std::size_t running = 1; running > 0;) {
    if (go_on && !wanted()) {
      go_on = false;
      all.cut_short = "stopped";
      look(true, false);
    }
    look(false, go_on);
    running = 0;
    for (auto& [index, node] : nodes_) {
      if (node.silent || files_.exists(end_path(folder_.path(), index))) continue;
      node.silent = node.pulse.silent_s() > patience_s_;
      if (!node.silent) {
        ++running;
      } else if (all.cut_short.empty()) {
        all.cut_short =
            fmt::format("process {} of {} has not been heard of for {} s", index, place_.count, patience_s_);
      }
    }
    if (running > 0) std::this_thread::sleep_for(kPoll);
  }
  look(true, go_on);
  for (const auto& [index, node] : nodes_) {
    const std::string path = end_path(folder_.path(), index), text = text_of(files_, path);
    if (text.empty()) continue;
    const NodeEnd end = parse_node_end(text, path);
    all.busy_s += end.busy_s, all.lost_workers += end.lost_workers;
    all.repeated += end.repeated, all.workers += end.workers;
    if (all.cut_short.empty()) all.cut_short = end.cut_short;
  }
  return all;
}

OwnerSeen::OwnerSeen(FileSystem& files, std::string folder, std::int64_t index, double patience_s)
    : files_(files),
      folder_(std::move(folder)),
      token_path_(token_path(folder_, index)),
      token_(fmt::format("{:08x}{:08x}", std::random_device{}(), std::random_device{}())),
      patience_s_(patience_s),
      pulse_(files, open_path(folder_)) {}

void OwnerSeen::wait(const SimulationManifest& wanted) {
  const Steady::time_point begun = Steady::now();
  while (true) {
    const bool beats = pulse_.beats();
    const std::string text = text_of(files_, open_path(folder_));
    if (beats && text.find(token_) != std::string::npos) return;
    if (beats && !text.starts_with(opened_for(wanted)))
      fail_config(fmt::format(
          "process 0 opened '{}' for another simulation; start all with one configuration", folder_));
    if (base::seconds_since(begun) > patience_s_) {
      fail_run(fmt::format(
          "process 0 has not opened '{}' for this one within {} s; do all processes see one folder, is "
          "it in use, and what did process 0 say?",
          folder_, patience_s_));
    }
    // Process 0 first removes old files. A process that shows itself again does not overwrite another's
    // token.
    if (beats && !files_.exists(token_path_)) files_.write_text_atomically(token_path_, token_);
    std::this_thread::sleep_for(kPoll);
  }
}

bool OwnerSeen::wants_more() {
  if (!wants_ || Steady::now() - looked_ < kBetweenLooks) return wants_;
  looked_ = Steady::now();
  const std::string text = text_of(files_, open_path(folder_));
  wants_ =
      pulse_.silent_s() <= patience_s_ && text.find(token_) != std::string::npos && !text.ends_with(kStop);
  return wants_;
}

void tell_end(FileSystem& files, const std::string& folder, Place place, const NodeEnd& end) {
  files.write_text_atomically(end_path(folder, place.index), node_end_text(end));
}

}  // namespace tenon::simulate
