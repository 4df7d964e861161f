// Tables, JSON and terminal lines of slabs_render.hpp.
#include "reproduce/slabs_render.hpp"

#include "ab/format.hpp"
#include "base/json_writer.hpp"
#include "reproduce/render.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

namespace tenon::reproduce {
namespace {

constexpr const char* kAbsent = "–";

std::string percent(const std::optional<double>& share) {
  return share ? ab::fixed(100 * *share, 1) : kAbsent;
}

/// Milliseconds with three digits.
std::string milliseconds(const std::optional<double>& seconds) {
  if (!seconds) return kAbsent;
  const double ms = 1000 * *seconds;
  return ab::fixed(ms, ms >= 100 ? 0 : ms >= 10 ? 1 : ms >= 1 ? 2 : 3);
}

std::string whole(const std::optional<double>& bytes) {
  return bytes ? count(*bytes) : kAbsent;
}

std::string extents(const std::vector<std::int64_t>& points) {
  return fmt::format("{}", fmt::join(points, " x "));
}

std::string predicted_table(const StudyResult& r, const SlabArm& arm) {
  const std::vector<SlabLink>& links = r.study.slabs->links;
  std::vector<std::string> names{"ranks", "field", "field of a rank", "computing, ms, measured on one rank"};
  for (const SlabLink& link : links) {
    names.push_back(fmt::format("links, ms, by formula: {}", link.title));
    names.push_back("efficiency, %");
    names.push_back("latencies added up: efficiency, %");
  }
  std::string out = head(names);
  for (const SlabPoint& point : arm.points) {
    std::vector<std::string> cells{std::to_string(point.ranks), extents(point.points),
                                   extents(point.local_points), milliseconds(point.compute_s)};
    for (std::size_t i = 0; i < links.size(); ++i) {
      cells.push_back(milliseconds(point.overlapped[i].link_s));
      cells.push_back(percent(point.overlapped[i].efficiency));
      cells.push_back(percent(point.added[i].efficiency));
    }
    out += row(cells);
  }
  return out;
}

std::string counted_table(const SlabArm& arm) {
  std::string out =
      head({"ranks", "complex numbers of a move, by formula", "bytes of rank 0 in an update, counted",
            "by formula", "of them moves, by formula", "links, ms, simulated", "by formula"});
  for (const SlabPoint& point : arm.points) {
    if (!point.counted_bytes && point.ranks > 1) continue;
    out += row({std::to_string(point.ranks), count(static_cast<double>(point.elements)),
                point.ranks == 1 ? "0" : whole(point.counted_bytes), count(static_cast<double>(point.bytes)),
                count(static_cast<double>(point.move_bytes)), milliseconds(point.virtual_s),
                milliseconds(point.overlapped.front().link_s)});
  }
  return out;
}

std::string threads_table(const SlabArm& arm) {
  std::string out = head({"ranks", "an update, ms, measured", "efficiency, %"});
  for (const SlabPoint& point : arm.points) {
    if (point.ranks == 1) out += row({"1", milliseconds(point.compute_s), "100"});
    if (!point.threads_s) continue;
    out +=
        row({std::to_string(point.ranks), milliseconds(point.threads_s), percent(point.threads_efficiency)});
  }
  return out;
}

}  // namespace

std::string slab_tables(const StudyResult& r) {
  std::string out, counted, threads;
  for (const SlabArm& arm : r.slabs->arms) {
    const SlabOperator& op = arm.one;
    const std::string title = fmt::format("### {}: {} scaling\n\n", arm.title, arm.weak ? "weak" : "strong");
    out += title +
           fmt::format("{} layers of {} channels, modes {} on one rank, cut along dimension {}.\n\n",
                       op.layers, op.width, extents(op.modes), op.cut) +
           predicted_table(r, arm) + "\n";
    counted += title + counted_table(arm) + "\n";
    threads += title + threads_table(arm) + "\n";
  }
  out +=
      "Efficiency is T(1) / T(P) for weak and T(1) / (P T(P)) for strong scaling, where T(P) = computing + "
      "links. Computing is **measured**: an update of one rank, one thread of the machine below, on the "
      "field "
      "that one of P ranks has, with as many modes along the cut as keep its number of modes. Links are "
      "**computed**: bytes of the busiest rank / bandwidth + latencies, no overlap with compute. "
      "Messages of one exchange overlap their latencies; in the columns \"added up\" each waits for the one "
      "before. No network and no other machine was measured.\n";
  out += "\n## Bytes, counted, and seconds of the links, simulated\n\n" + counted +
         fmt::format(
             "Counted on ranks under the simulated clock, which are threads of this machine and send "
             "every byte; their computing costs nothing, so what an update takes is the links' ({}). "
             "A move: B C x kept modes x points of the cut dimension x (1 - sum over ranks of share of "
             "modes x share of points); an update has four per layer, sums of the gradients of weights "
             "that all ranks hold, three sums of losses and a norm.\n",
             r.study.slabs->links.front().title);
  return out + "\n## Measured with threads on this machine\n\n" + threads +
         "Ranks are threads that exchange through memory, one thread each, and share the machine below.\n";
}

void slab_json(JsonWriter& json, const StudyResult& r) {
  const auto number = [&](const char* key, const std::optional<double>& value) {
    json.member(key, value.value_or(JsonWriter::kNull));
  };
  json.objects("slabs", r.slabs->arms, [&](const SlabArm& arm) {
    json.member("arm", arm.name);
    json.member("title", arm.title);
    json.member("scaling", arm.weak ? "weak" : "strong");
    json.objects("points", arm.points, [&](const SlabPoint& point) {
      json.member("ranks", point.ranks);
      json.member("field", fmt::format("{}", fmt::join(point.points, "x")));
      json.member("field_of_a_rank", fmt::format("{}", fmt::join(point.local_points, "x")));
      json.member("move_elements_by_formula", point.elements);
      json.member("bytes_by_formula", point.bytes);
      json.member("move_bytes_by_formula", point.move_bytes);
      number("bytes_counted", point.counted_bytes);
      number("compute_s_measured", point.compute_s);
      number("threads_s_measured", point.threads_s);
      number("threads_efficiency_measured", point.threads_efficiency);
      number("link_s_simulated", point.virtual_s);
      std::size_t i = 0;
      json.objects("links", r.study.slabs->links, [&](const SlabLink& link) {
        json.member("link", link.name);
        json.member("bandwidth", link.bandwidth);
        json.member("latency", link.latency);
        json.member("link_s_by_formula", point.overlapped[i].link_s);
        number("efficiency_predicted", point.overlapped[i].efficiency);
        json.member("link_s_latencies_added", point.added[i].link_s);
        number("efficiency_latencies_added", point.added[i].efficiency);
        ++i;
      });
    });
  });
}

std::string slab_text(const StudyResult& r) {
  std::string out;
  for (const SlabArm& arm : r.slabs->arms) {
    for (std::size_t i = 0; i < r.study.slabs->links.size(); ++i) {
      out += fmt::format("  {:<12}{:<24} efficiency predicted, %:", arm.name, r.study.slabs->links[i].name);
      for (const SlabPoint& point : arm.points)
        out += fmt::format(" {} at {};", percent(point.overlapped[i].efficiency), point.ranks);
      out += "\n";
    }
    for (const SlabPoint& point : arm.points) {
      if (point.threads_efficiency)
        out += fmt::format("  {:<12}{} threads, measured: {} %\n", arm.name, point.ranks,
                           percent(point.threads_efficiency));
    }
  }
  return out;
}

std::string slab_size_text(const StudyFile& study, const Size& size) {
  std::vector<std::string> names;  // of a study whose arms are its runs already, too
  for (const StudyArm& arm : study.arms) {
    const std::string& name = arm.of.empty() ? arm.arm.name : arm.of;
    if (names.empty() || names.back() != name) names.push_back(name);
  }
  return fmt::format("{} arm{} on up to {} ranks x {} seed{} x {} updates", names.size(),
                     names.size() == 1 ? "" : "s", study.slabs->predicted_at(size).back(), size.seeds.size(),
                     size.seeds.size() == 1 ? "" : "s", size.steps);
}

}  // namespace tenon::reproduce
