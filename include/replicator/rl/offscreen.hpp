// SPDX-License-Identifier: Apache-2.0
// Renders MuJoCo bodies without a screen. Needs libmujoco and libEGL (the CMake components mujoco and egl).
#pragma once

#include <EGL/egl.h>
#include <EGL/eglext.h>
#include <mujoco/mujoco.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <replicator/core/error.hpp>
#include <replicator/core/shape.hpp>
#include <replicator/rl/mujoco.hpp>

namespace replicator::rl {

namespace detail {

inline std::string egl_error(const char* what) {
  char code[16];
  std::snprintf(code, sizeof code, "0x%x", static_cast<unsigned>(eglGetError()));
  return std::string{"EGL cannot "} + what + " (error " + code + ")";
}

// An EGL display that needs no screen: Mesa's, or the platform's own. It stays open as long as the process: EGL counts
// its users.
inline EGLDisplay offscreen_display() {
  EGLDisplay display = eglGetPlatformDisplay(EGL_PLATFORM_SURFACELESS_MESA, EGL_DEFAULT_DISPLAY, nullptr);
  if (display == EGL_NO_DISPLAY || eglInitialize(display, nullptr, nullptr) == EGL_FALSE) {
    display = eglGetDisplay(EGL_DEFAULT_DISPLAY);
    if (display == EGL_NO_DISPLAY || eglInitialize(display, nullptr, nullptr) == EGL_FALSE)
      throw DeviceError{egl_error("open a display") + ": install libegl-mesa0 and libgl1-mesa-dri, which draw without a GPU"};
  }
  return display;
}

// An OpenGL context that draws into memory. It is current in a thread only during a call of with().
class OffscreenContext {
 public:
  // Throws DeviceError if EGL has no such context.
  OffscreenContext() : display_{offscreen_display()} {
    const EGLint wanted[] = {EGL_SURFACE_TYPE, EGL_PBUFFER_BIT, EGL_RENDERABLE_TYPE, EGL_OPENGL_BIT, EGL_RED_SIZE, 8, EGL_GREEN_SIZE, 8,
                             EGL_BLUE_SIZE, 8, EGL_DEPTH_SIZE, 24, EGL_NONE};
    EGLConfig config{};
    EGLint found = 0;
    if (eglBindAPI(EGL_OPENGL_API) == EGL_FALSE || eglChooseConfig(display_, wanted, &config, 1, &found) == EGL_FALSE)
      throw DeviceError{egl_error("offer OpenGL")};
    if (found == 0)
      throw DeviceError{"EGL has no configuration with OpenGL, 24 bits of depth and 8 bits for each colour: install libgl1-mesa-dri, which draws without a GPU"};
    const EGLint extents[] = {EGL_WIDTH, 1, EGL_HEIGHT, 1, EGL_NONE};  // MuJoCo draws into its own buffers
    surface_ = eglCreatePbufferSurface(display_, config, extents);
    context_ = eglCreateContext(display_, config, EGL_NO_CONTEXT, nullptr);
    if (surface_ != EGL_NO_SURFACE && context_ != EGL_NO_CONTEXT) return;
    const auto error = egl_error("make a context");
    release();
    throw DeviceError{error};
  }
  OffscreenContext(const OffscreenContext&) = delete;
  OffscreenContext& operator=(const OffscreenContext&) = delete;
  ~OffscreenContext() { release(); }

  // Runs f with the context current. Throws DeviceError, and whatever f throws.
  template <class F>
  void with(F&& f) const {
    if (eglBindAPI(EGL_OPENGL_API) == EGL_FALSE || eglMakeCurrent(display_, surface_, surface_, context_) == EGL_FALSE)
      throw DeviceError{egl_error("use a context")};
    const Leave leave{display_};
    f();
  }

 private:
  struct Leave {
    EGLDisplay display;
    ~Leave() { eglMakeCurrent(display, EGL_NO_SURFACE, EGL_NO_SURFACE, EGL_NO_CONTEXT); }
  };
  void release() {
    if (context_ != EGL_NO_CONTEXT) eglDestroyContext(display_, context_);
    if (surface_ != EGL_NO_SURFACE) eglDestroySurface(display_, surface_);
  }

  EGLDisplay display_;
  EGLSurface surface_ = EGL_NO_SURFACE;
  EGLContext context_ = EGL_NO_CONTEXT;
};

struct Scene {
  Scene() { mjv_defaultScene(&value); }
  Scene(const Scene&) = delete;
  Scene& operator=(const Scene&) = delete;
  ~Scene() { mjv_freeScene(&value); }
  mjvScene value;
};

}  // namespace detail

// Draws a body as its camera "watch" sees it, without shadows, reflections or multisampling. Any thread may use it, one
// at a time.
class Renderer {
 public:
  // **Construct it while no other renderer draws**: MuJoCo looks up OpenGL's functions anew each time.
  // Throws DeviceError if there is no OpenGL without a screen, DataError for a model without the camera, and BuildError
  // for more pixels than the model's <visual><global offwidth offheight/>.
  Renderer(const mjModel& model, std::int64_t height, std::int64_t width) : model_{model}, height_{height}, width_{width} {
    if (height < 1 || width < 1 || height > model.vis.global.offheight || width > model.vis.global.offwidth)
      throw BuildError{"pictures of " + std::to_string(height) + " x " + std::to_string(width) + " pixels were asked for, but the model allows at most " +
                       std::to_string(model.vis.global.offheight) + " x " + std::to_string(model.vis.global.offwidth)};
    detail::take_over_errors();
    camera_.type = mjCAMERA_FIXED;
    camera_.fixedcamid = mj_name2id(&model, mjOBJ_CAMERA, "watch");
    if (camera_.fixedcamid < 0) throw DataError{"a body that is to be drawn needs a camera named \"watch\""};
    mjv_defaultOption(&options_);
    mjr_defaultContext(&drawing_);
    context_.with([&] {
      mjv_makeScene(&model_, &scene_.value, 200);
      try {
        mjr_makeContext(&model_, &drawing_, mjFONTSCALE_50);
      } catch (const DataError& error) {
        throw DeviceError{std::string{error.what()} + ": it draws by OpenGL 1.5 and later, which it finds as libGL.so (libgl-dev)"};
      }
      mjr_setBuffer(mjFB_OFFSCREEN, &drawing_);
    });
    for (const auto off : {mjRND_SHADOW, mjRND_REFLECTION, mjRND_SKYBOX, mjRND_HAZE}) scene_.value.flags[off] = 0;
  }
  Renderer(const Renderer&) = delete;
  Renderer& operator=(const Renderer&) = delete;
  ~Renderer() {
    try {
      context_.with([&] { mjr_freeContext(&drawing_); });
    } catch (const std::exception&) {
      // Whatever cannot be freed is freed with the context.
    }
  }

  // Draws RGB, the upper row first: height * width * 3 bytes.
  // Throws BuildError for another number of bytes, and DeviceError.
  void draw(const mjData& data, std::span<std::uint8_t> pixels) {
    if (pixels.size() != static_cast<std::size_t>(3 * height_ * width_))
      throw BuildError{"a picture of " + std::to_string(height_) + " x " + std::to_string(width_) + " pixels was to be drawn into " +
                       std::to_string(pixels.size()) + " bytes: it has 3 for each pixel"};
    const mjrRect whole{0, 0, static_cast<int>(width_), static_cast<int>(height_)};
    const auto row = static_cast<std::size_t>(3 * width_);
    drawn_.resize(row * static_cast<std::size_t>(height_));
    context_.with([&] {
      // mjv_updateScene takes a mutable state, but does not change it here.
      mjv_updateScene(&model_, const_cast<mjData*>(&data), &options_, nullptr, &camera_, mjCAT_ALL, &scene_.value);
      mjr_render(whole, &scene_.value, &drawing_);
      mjr_readPixels(drawn_.data(), nullptr, whole, &drawing_);
    });
    for (std::size_t y = 0; y < static_cast<std::size_t>(height_); ++y)
      std::copy_n(drawn_.data() + (static_cast<std::size_t>(height_) - 1 - y) * row, row, pixels.data() + y * row);
  }

 private:
  const mjModel& model_;
  std::int64_t height_, width_;
  detail::OffscreenContext context_;
  mjvCamera camera_{};
  mjvOption options_{};
  detail::Scene scene_;
  mjrContext drawing_{};
  std::vector<unsigned char> drawn_;
};

// An environment that observes pictures of the body: the latest three, channels first, the oldest in front: [9, 64,
// 64].
class SeenBodyEnvironment {
 public:
  using Observation = std::uint8_t;
  static constexpr std::int64_t extent = 64, frames = 3;

  explicit SeenBodyEnvironment(const Body& body) : felt_{body}, renderer_{std::make_unique<Renderer>(body.model(), extent, extent)} {}

  Shape observation_shape() const { return Shape{3 * frames, extent, extent}; }
  std::int64_t action_size() const { return felt_.action_size(); }
  const mjData& data() const { return felt_.data(); }
  void reset(std::uint64_t episode) {
    felt_.reset(episode);
    for (std::int64_t i = 0; i < frames; ++i) look();
  }
  void observe(std::span<std::uint8_t> out) const { std::copy(seen_.begin(), seen_.end(), out.begin()); }
  Outcome act(std::span<const float> action) {
    const auto outcome = felt_.act(action);
    look();
    return outcome;
  }

 private:
  static constexpr std::size_t pixels = static_cast<std::size_t>(extent * extent);

  void look() {
    std::copy(seen_.begin() + 3 * pixels, seen_.end(), seen_.begin());
    renderer_->draw(felt_.data(), picture_);
    std::uint8_t* newest = seen_.data() + seen_.size() - 3 * pixels;
    for (std::size_t i = 0; i < pixels; ++i)
      for (std::size_t c = 0; c < 3; ++c) newest[c * pixels + i] = picture_[3 * i + c];
  }

  BodyEnvironment felt_;
  std::unique_ptr<Renderer> renderer_;
  std::vector<std::uint8_t> seen_ = std::vector<std::uint8_t>(3 * static_cast<std::size_t>(frames) * pixels);
  std::vector<std::uint8_t> picture_ = std::vector<std::uint8_t>(3 * pixels);
};

}  // namespace replicator::rl
