"""Does with QtWebEngine what setup/browser asks of Chromium: loads one page without a display, then prints its
document, takes a picture or prints it. Understands only the Chromium options that setup/browser passes."""

import os
import sys

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
os.environ.setdefault("QTWEBENGINE_DISABLE_SANDBOX", "1")
flags = ["--host-resolver-rules=MAP * ~NOTFOUND", "--disable-gpu"]
flags += [option for option in sys.argv if option.startswith("--blink-settings=")]
os.environ["QTWEBENGINE_CHROMIUM_FLAGS"] = " ".join(f'"{flag}"' if " " in flag else flag for flag in flags)

from PyQt6.QtCore import QSize, QTimer, QUrl  # noqa: E402  (the environment must be set before Qt is loaded)
from PyQt6.QtWebEngineWidgets import QWebEngineView  # noqa: E402
from PyQt6.QtWidgets import QApplication  # noqa: E402

SETTLE_MS = 1500
GIVE_UP_MS = 60_000


def main() -> int:
    options = dict(a.split("=", 1) if "=" in a else (a, "") for a in sys.argv[1:-1])
    app = QApplication(sys.argv[:1])
    view = QWebEngineView()
    width, height = (int(part) for part in options.get("--window-size", "1280,2400").split(","))
    view.resize(QSize(width, height))
    view.show()

    def print_document(html: str) -> None:
        print(html)
        app.exit(0)

    def act() -> None:
        if "--dump-dom" in options:
            view.page().toHtml(print_document)
        elif "--screenshot" in options:
            app.exit(0 if view.grab().save(options["--screenshot"]) else 1)
        else:
            view.page().pdfPrintingFinished.connect(lambda _path, ok: app.exit(0 if ok else 1))
            view.page().printToPdf(options["--print-to-pdf"])

    def loaded(ok: bool) -> None:
        if ok:
            QTimer.singleShot(SETTLE_MS, act)
        else:
            print(f"cannot load {sys.argv[-1]}", file=sys.stderr)
            app.exit(1)

    view.loadFinished.connect(loaded)
    QTimer.singleShot(GIVE_UP_MS, lambda: app.exit(3))
    view.load(QUrl(sys.argv[-1]))
    return app.exec()


sys.exit(main())
