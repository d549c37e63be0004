"""Images: an agent in plain Python whose answer is a file.

    python image.py

It draws with the standard library. SAMPLES_IMAGE_MODEL, such as gemini-2.5-flash-image, with GOOGLE_API_KEY lets a model draw.
"""

import os
import re
import struct
import zlib

from holdfast_agent import Agent, Fail, file

agent = Agent("image")
COLORS = {"red": (220, 50, 47), "green": (60, 160, 60), "blue": (38, 139, 210), "yellow": (230, 190, 0), "black": (0, 0, 0)}
SHAPES = {"circle": lambda x, y: x * x + y * y <= 0.8, "square": lambda x, y: max(abs(x), abs(y)) <= 0.8}


@agent.run
async def draw(run):
    # The wish before, of this context: "now in red" changes only the color.
    wish = run.state("context").data or {"color": "blue", "shape": "circle"}
    for word in re.findall(r"\w+", run.message.text.lower()):
        if word in COLORS:
            wish = {**wish, "color": word}
        if word in SHAPES:
            wish = {**wish, "shape": word}
    name = f"{wish['color']} {wish['shape']}"
    await run.progress(f"Drawing a {name}.")
    if model := os.environ.get("SAMPLES_IMAGE_MODEL"):
        image, media_type = await ask(model, run.message.text)
    else:
        image, media_type = png(64, COLORS[wish["color"]], SHAPES[wish["shape"]]), "image/png"
    await run.set_state(wish, "context")
    # The id is that of the turn, so that another try replaces the file.
    await run.artifact(file(image, filename="image.png", media_type=media_type), name="image", id=f"image-{run.turn}")
    await run.complete("Here is your image.")


def png(size, color, inside):
    """The bytes of a PNG: a shape on white."""

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    rows = b""
    for y in range(size):
        rows += b"\0"  # no filter
        for x in range(size):
            rows += bytes(color if inside(2 * x / (size - 1) - 1, 2 * y / (size - 1) - 1) else (255, 255, 255))
    header = struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


async def ask(model, text):
    from google import genai

    answer = await genai.Client().aio.models.generate_content(model=model, contents=text)
    for part in answer.parts or []:
        if part.inline_data:
            return part.inline_data.data, part.inline_data.mime_type
    raise Fail("The model has drawn nothing.")


if __name__ == "__main__":
    agent.serve()
