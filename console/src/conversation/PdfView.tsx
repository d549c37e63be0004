import { GlobalWorkerOptions, getDocument, type PDFDocumentProxy } from "pdfjs-dist";
import { useEffect, useRef, useState } from "react";
import { Button } from "../components/Button";
import { ErrorBox } from "../components/ErrorBox";

GlobalWorkerOptions.workerPort = new Worker(new URL("pdfjs-dist/build/pdf.worker.min.mjs", import.meta.url), {
  type: "module",
});

/**
 * PdfView draws the pages of a PDF on canvases. A worker reads the file; its scripts, links and forms do nothing, because only what
 * is drawn reaches the page.
 */
export default function PdfView({ source, name }: { source: string; name: string }) {
  const [document, setDocument] = useState<PDFDocumentProxy>();
  const [error, setError] = useState<unknown>();
  const [page, setPage] = useState(1);
  const canvas = useRef<HTMLCanvasElement>(null);

  useEffect(() => {
    const task = getDocument({
      url: source,
      isEvalSupported: false,
      useWasm: false,
      maxImageSize: 1 << 25,
      stopAtErrors: false,
    });
    task.promise.then(setDocument, setError);
    return () => {
      void task.destroy();
    };
  }, [source]);

  useEffect(() => {
    const target = canvas.current;
    if (!document || !target) return;
    let over = false;
    let stop = () => {};
    document.getPage(page).then(
      (p) => {
        if (over) return;
        const plain = p.getViewport({ scale: 1 });
        const ratio = Math.min(devicePixelRatio, 2);
        const scale = Math.min(
          (target.parentElement?.clientWidth ?? 540) / plain.width,
          4096 / plain.width,
          4096 / plain.height,
        );
        const viewport = p.getViewport({ scale: scale * ratio });
        target.width = viewport.width;
        target.height = viewport.height;
        const render = p.render({ canvas: target, viewport });
        stop = () => render.cancel();
        render.promise.catch(() => {});
      },
      (failed: unknown) => !over && setError(failed),
    );
    return () => {
      over = true;
      stop();
    };
  }, [document, page]);

  if (error !== undefined) return <ErrorBox title="The PDF cannot be shown" error={error} />;
  return (
    <div className="part-pdf">
      <canvas ref={canvas} role="img" aria-label={`${name}, page ${page}`} />
      {document && document.numPages > 1 && (
        <div className="part-tools">
          <Button onClick={() => setPage(page - 1)} disabled={page <= 1}>
            Previous
          </Button>
          <span className="muted">
            page {page} of {document.numPages}
          </span>
          <Button onClick={() => setPage(page + 1)} disabled={page >= document.numPages}>
            Next
          </Button>
        </div>
      )}
    </div>
  );
}
