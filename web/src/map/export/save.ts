/** Pictures are saved with so many pixels for each that is seen. */
const SHARPNESS = 2;

export function svgText(picture: SVGSVGElement): string {
  return `<?xml version="1.0" encoding="UTF-8"?>\n${new XMLSerializer().serializeToString(picture)}\n`;
}

export async function savePicture(
  picture: SVGSVGElement,
  format: "png" | "svg",
  name: string,
): Promise<void> {
  const svg = new Blob([svgText(picture)], { type: "image/svg+xml" });
  download(format === "svg" ? svg : await toPng(svg, picture), `${name}.${format}`);
}

async function toPng(svg: Blob, picture: SVGSVGElement): Promise<Blob> {
  const url = URL.createObjectURL(svg);
  try {
    const image = new Image();
    image.src = url;
    await image.decode();
    const canvas = document.createElement("canvas");
    canvas.width = SHARPNESS * Number(picture.getAttribute("width"));
    canvas.height = SHARPNESS * Number(picture.getAttribute("height"));
    const brush = canvas.getContext("2d");
    brush?.scale(SHARPNESS, SHARPNESS);
    brush?.drawImage(image, 0, 0);
    return await new Promise((resolve, reject) => {
      canvas.toBlob((blob) => {
        if (blob) resolve(blob);
        else reject(new Error("The picture is too large to be saved as PNG. Save it as SVG."));
      });
    });
  } finally {
    URL.revokeObjectURL(url);
  }
}

function download(blob: Blob, name: string): void {
  const url = URL.createObjectURL(blob);
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  // Not before the browser has taken it.
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
