#include "plugin/guard.hpp"

#include <tenon/config.hpp>
#include <tenon/error.hpp>

#include <fmt/format.h>

#include <exception>
#include <iterator>
#include <optional>
#include <utility>

namespace tenon {
namespace {

thread_local std::optional<GuardContext> failed_call;

/// Has the names of the call that it left.
class NamedError final : public Error {
 public:
  using Error::Error;
};

}  // namespace

constinit thread_local ThreadCalls calls_of_thread;

std::string guard_place(const GuardContext& context) {
  std::string inner(context.plugin.empty() ? "" : context.component);
  const auto add = [&inner](std::string_view name, std::int64_t value) {
    if (value >= 0)
      fmt::format_to(std::back_inserter(inner), "{}{} {}", inner.empty() ? "" : ", ", name, value);
  };
  add("rank", context.rank);
  add("step", context.step);
  const std::string who =
      context.plugin.empty() ? std::string(context.component) : fmt::format("plugin {}", context.plugin);
  return inner.empty() ? who : fmt::format("{} ({})", who, inner);
}

std::string config_text(const GuardContext& context, std::string_view message) {
  GuardContext place = context;
  if (place.step < 0) place.rank = -1;
  const std::string written = context.options == nullptr ? "" : context.options->place_of(message);
  return fmt::format("{}{}{}: {}", written, written.empty() ? "" : ": ", guard_place(place), message);
}

void note_failed_call(const GuardContext& context) noexcept {
  if (!failed_call) failed_call = context;
}

void forget_noted_options(const ResolvedOptions* options) noexcept {
  if (failed_call && failed_call->options == options) failed_call->options = nullptr;
}

void rethrow_noted_call() {
  if (const auto call = std::exchange(failed_call, std::nullopt)) rethrow_named(*call);
  throw;
}

void rethrow_named(const GuardContext& context) {
  const std::string place = guard_place(context);
  try {
    throw;
  } catch (const CancelledError&) {
    throw;
  } catch (const NamedError&) {
    throw;
  } catch (const DeadlineError& error) {
    throw DeadlineError(fmt::format("{}: {}", place, error.what()));
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kConfig)
      throw NamedError(error.kind(), config_text(context, error.what()));
    throw NamedError(error.kind(), fmt::format("{}: {}", place, error.what()));
  } catch (const std::exception& error) {
    throw NamedError(ErrorKind::kPlugin, fmt::format("{}: {}", place, error.what()));
  } catch (...) {
    throw NamedError(ErrorKind::kPlugin,
                     fmt::format("{}: threw an object that is not a std::exception", place));
  }
}

}  // namespace tenon
