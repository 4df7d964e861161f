// Where the ranks of a run live: all as threads of this process, or one per process. A process finds its
// place by what started it, or by a transport with a launcher of its own; then it joins the control plane and
// compares notes with the others before anything is opened.
#include "comm/control_endpoint.hpp"
#include "observe/build_info.hpp"
#include "train/world.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <utility>

namespace tenon::train {
namespace {

/// The rank's text exchange, for transports that must meet before they can send.
class TextRendezvous final : public Rendezvous {
 public:
  TextRendezvous(TextExchange& texts, int rank, int ranks) : texts_(texts), rank_(rank), ranks_(ranks) {}
  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }
  std::vector<std::string> exchange(const std::string& text) override { return texts_.exchange(rank_, text); }

 private:
  TextExchange& texts_;
  int rank_, ranks_;
};

std::string host_name() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  return name[0] == '\0' ? "127.0.0.1" : name;
}

/// "line 3: 'a' against 'b'", the first that differs.
std::string first_difference(std::string_view theirs, std::string_view ours) {
  for (int line = 1;; ++line) {
    const auto cut = [](std::string_view& text) {
      const auto end = text.find('\n');
      const std::string_view first = text.substr(0, end);
      text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
      return first;
    };
    const std::string_view a = cut(theirs), b = cut(ours);
    if (a != b) return fmt::format("line {}: '{}' against '{}'", line, a, b);
    if (theirs.empty() && ours.empty()) return "only in their ends of lines";
  }
}

}  // namespace

std::unique_ptr<ControlServer> World::make_control_server() {
  ControlServerSpec spec;
  spec.ranks = place.ranks;
  spec.deadline_s = settings.run.deadline;
  spec.address = "0.0.0.0";
  if (!place.control.empty()) {
    const auto [host, port] = control_endpoint(place.control);
    if (host == "127.0.0.1" || host == "localhost") spec.address = "127.0.0.1";
    spec.port = port;
  } else {
    place.token = random_control_token();
  }
  spec.token = place.token;
  return std::make_unique<ControlServer>(std::move(spec));
}

// A transport with a launcher of its own knows who we are, and carries the first address.
void World::find_place() {
  auto* launched = transport ? static_cast<Rendezvous*>(transport->query(Rendezvous::kId))
                             : static_cast<Rendezvous*>(nullptr);
  if (launched == nullptr || place.rank >= 0) {
    if (place.rank >= 0 && place.hosts_control) control_server = make_control_server();
    return;
  }
  place.rank = launched->rank();
  place.ranks = launched->ranks();
  std::string address;
  if (place.rank == 0) {
    control_server = make_control_server();
    address = fmt::format("{} {}:{}", place.token, host_name(), control_server->port());
  }
  const std::vector<std::string> all = launched->exchange(host_name() + " " + address);
  place.local_ranks = static_cast<int>(std::count_if(all.begin(), all.end(), [&](const std::string& text) {
    return text.substr(0, text.find(' ')) == host_name();
  }));
  const std::string& first = all[0];
  const auto token = first.find(' ') + 1, server = first.find(' ', token) + 1;
  place.token = first.substr(token, server - 1 - token);
  place.control = first.substr(server);
  if (place.local_ranks == place.ranks)
    place.control = "127.0.0.1" + place.control.substr(place.control.rfind(':'));
}

void World::open_control() {
  const auto ranks = static_cast<int>(settings.parallel.world());
  const auto trainers = static_cast<int>(settings.parallel.trainers());
  const auto cancel = [this](const std::string& text) {
    training_hub->cancel(text);
    end_hub->cancel(text);
    saving_hub->cancel(text);
    if (connected.load()) transport->cancel(text);
  };
  if (threads_only()) {
    training_hub = std::make_unique<TextHub>(trainers, *clock, settings.run.deadline);
    end_hub = std::make_unique<TextHub>(trainers, *clock, settings.run.deadline);
    saving_hub = std::make_unique<TextHub>(trainers, *saver_clock, settings.run.deadline);
    auto inprocess = make_inprocess_control(ranks, settings.run.deadline, *clock, trainers);
    inprocess->on_failure(cancel);
    control = std::move(inprocess);
    return;
  }
  if (settings.transport.simulated_clock) {
    fail_config(
        "transport.clock: the simulated clock orders the ranks of one process; start this run without a "
        "launcher, or use the wall clock");
  }
  if (ranks != place.ranks) {
    fail_config(fmt::format(
        "{} processes were started, but this configuration makes a world of {} ranks ([parallel] ranks x "
        "grid + servers); start {} processes, or change it, e.g. --set parallel.ranks={}",
        place.ranks, ranks, ranks, place.ranks));
  }
  const BuildInfo build = build_info();
  auto client = std::make_unique<ControlClient>(
      ControlClientSpec{place.control, place.rank, place.ranks, trainers, settings.run.deadline, place.token,
                        fmt::format("tenon {} {}", build.version, build.git)});
  training_hub = std::make_unique<RemoteTexts>(*client, ControlLane::kTraining);
  saving_hub = std::make_unique<RemoteTexts>(*client, ControlLane::kSaving);
  end_hub = std::make_unique<RemoteTexts>(*client, ControlLane::kEnds);
  world_hub = std::make_unique<RemoteTexts>(*client, ControlLane::kWorld);
  client->on_failure(cancel);
  control_client = client.get();
  control = std::move(client);
}

void World::connect(const WorldSpec& spec) {
  if (threads_only()) {
    transport->connect(spec);
    connected = true;
    return;
  }
  try {
    std::string& plugins = survival.plugins;
    if (plugins.empty()) {
      for (const LockedPlugin& plugin : loaded_plugins())
        plugins += fmt::format("plugin {} {} sha256 {}\n", plugin.id, plugin.version, plugin.sha256);
    }
    agree(*world_hub, place.rank, "configuration", to_toml(checked.resolved.root(), false));
    agree(*world_hub, place.rank, "list of plugins", plugins);
    rendezvous = std::make_unique<TextRendezvous>(*world_hub, place.rank, place.ranks);
    WorldSpec processes = spec;
    processes.rendezvous = rendezvous.get();
    transport->connect(processes);
    connected = true;
    if (control->failed())
      transport->cancel(control->failure());  // it came while there was nothing to cancel
  } catch (...) {
    cut_off_ = true;
    report_failure(place.rank);
    if (outlives()) goes_on();
    throw_failure();
    throw;
  }
}

void World::agree(TextExchange& among, int rank, std::string_view what, const std::string& text,
                  const std::string& device) {
  if (threads_only()) return;
  std::vector<std::string> devices, texts;  // the first line, and the rest
  for (const std::string& both : among.exchange(rank, fmt::format("{}\n{}", device, text))) {
    devices.push_back(both.substr(0, both.find('\n')));
    texts.push_back(both.substr(devices.back().size() + 1));
  }
  const auto differing = [](const std::vector<std::string>& all) {
    return std::find_if(all.begin(), all.end(), [&](const auto& one) { return one != all[0]; }) - all.begin();
  };
  const auto other = static_cast<std::size_t>(differing(texts)),
             odd = static_cast<std::size_t>(differing(devices));
  if (other < texts.size()) {
    fail_config(fmt::format("rank {} and rank 0 differ in their {}, {}; all processes of a run need the same",
                            other, what, first_difference(texts[other], texts[0])));
  }
  if (rank != 0 || odd == devices.size()) return;
  notes.push_back(fmt::format(
      "the ranks have different devices: rank 0 has {}, rank {} has {}; last bits of results depend on which "
      "rank has which, and the slowest sets the pace",
      devices[0], odd, devices[odd]));
}

// The folder and the place to continue from are rank 0's findings; the others see the same files.
void World::share_opening(int rank, int keep) {
  const std::vector<std::string> all = end_hub->exchange(
      rank, rank == 0 ? fmt::format("{}\n{}\n{:a}\n{}\n{}\n", std::filesystem::absolute(folder.path).string(),
                                    restored_slot, restored_wall_s, recorded_kernels, timeline)
                      : "open");
  if (threads_only() || rank == 0) return;
  std::istringstream opened(all[0]);
  std::string slot, wall, line;
  std::getline(opened, folder.path);
  std::getline(opened, slot);
  std::getline(opened, wall);
  std::getline(opened, recorded_kernels);
  std::getline(opened, line);
  restored_slot = std::stoll(slot);
  timeline = std::stoll(line);
  restored_wall_s = std::strtod(wall.c_str(), nullptr);
  if (!files->exists(folder.path)) {
    fail_run(
        fmt::format("rank {} on {} cannot see the run's folder {}, which rank 0 opened; all processes of a "
                    "run need one file system, e.g. --run-dir on a shared disk",
                    rank, host_name(), folder.path));
  }
  result.folder = folder.path;
  StoreOptions options;
  options.keep = std::max(2, keep);
  options.hook = [this](const char* name) { phase.enter(name); };
  store = std::make_unique<CheckpointStore>(*files, folder.path + "/checkpoints", options);
}

}  // namespace tenon::train
