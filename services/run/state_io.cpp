// Scalars are written so that they read back to the same bits: integers in decimal, reals in hexadecimal.
#include "run/state_io.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

namespace tenon::train {
namespace {

std::string join(const std::vector<std::string>& prefix, std::string_view name) {
  std::string path;
  for (const std::string& part : prefix) path += part + "/";
  return path.append(name);
}

[[noreturn]] void fail_scalar(const std::string& name, const std::string& text, const char* expected) {
  fail_run(fmt::format(
      "checkpoint: state '{}' should be {}, found '{}'; the file is of another version or damaged", name,
      expected, text));
}

}  // namespace

StateSource::~StateSource() = default;

std::string StateCollector::path(std::string_view name) const {
  return join(prefix_, name);
}

void StateCollector::add(std::string_view name, std::string text) {
  std::string full = path(name);
  const bool twice =
      std::any_of(scalars.begin(), scalars.end(), [&](const auto& s) { return s.first == full; });
  if (twice) fail_plugin("state '" + full + "' is written twice; names must be unique within a component");
  scalars.emplace_back(std::move(full), std::move(text));
}

void StateCollector::integer(std::string_view name, std::int64_t& value) {
  add(name, std::to_string(value));
}
void StateCollector::real(std::string_view name, double& value) {
  add(name, fmt::format("{:a}", value));
}
void StateCollector::text(std::string_view name, std::string& value) {
  add(name, value);
}
void StateCollector::tensor(std::string_view name, TensorView value) {
  tensors.emplace_back(path(name), value);
}

std::string StateRestorer::path(std::string_view name) const {
  return join(prefix_, name);
}

const std::string* StateRestorer::find(std::string_view name) {
  const std::string full = path(name);
  const std::string* text = source_.scalar(full);
  if (text == nullptr && missing_ == Missing::kError) {
    fail_run("checkpoint: state '" + full +
             "' is missing; the run was saved with other components or versions");
  }
  return text;
}

void StateRestorer::integer(std::string_view name, std::int64_t& value) {
  const std::string* text = find(name);
  if (text == nullptr) return;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size())
    fail_scalar(path(name), *text, "a whole number");
}

void StateRestorer::real(std::string_view name, double& value) {
  const std::string* text = find(name);
  if (text == nullptr) return;
  char* end = nullptr;
  value = std::strtod(text->c_str(), &end);
  if (text->empty() || end != text->c_str() + text->size()) fail_scalar(path(name), *text, "a number");
}

void StateRestorer::text(std::string_view name, std::string& value) {
  if (const std::string* text = find(name)) value = *text;
}
void StateRestorer::tensor(std::string_view name, TensorView value) {
  source_.tensor(path(name), value);
}

bool CheckpointSource::holds(const StateCollector& kept) const {
  const auto scalar = [&](const auto& entry) { return reader_.meta(prefix_ + entry.first) != nullptr; };
  const auto tensor = [&](const auto& entry) {
    const TensorSpec* const found = reader_.find(prefix_ + entry.first);
    return found != nullptr && found->dtype == entry.second.dtype && found->shape == entry.second.shape;
  };
  return std::ranges::all_of(kept.scalars, scalar) && std::ranges::all_of(kept.tensors, tensor);
}

void CheckpointSource::tensor(const std::string& name, TensorView out) {
  read(name, Shape(std::vector<std::int64_t>(out.shape.rank(), 0)), out);
}

void CheckpointSource::read(const std::string& name, const Shape& offset, TensorView out) {
  const std::string full = prefix_ + name;
  if (reader_.find(full) == nullptr)
    fail_run(
        fmt::format("checkpoint step-{}: tensor '{}' is missing; it was saved by a run with another "
                    "model, optimizer or sync strategy",
                    reader_.step(), full));
  read_into(out, device_, staging_, [&](TensorView host) { reader_.read_slice(full, offset, host); });
}

}  // namespace tenon::train
