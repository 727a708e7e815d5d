"""Opens browser.html in Chromium's engine, without a screen, and prints what its script has computed.

    browser.py ROUNDS
"""
import sys
from pathlib import Path

from PyQt5.QtCore import QUrl
from PyQt5.QtWebEngineWidgets import QWebEnginePage
from PyQt5.QtWidgets import QApplication


def main(rounds):
    application = QApplication(sys.argv[:1])
    page = QWebEnginePage()
    printed = []

    def finish(result):
        printed.append(result)
        application.quit()

    def begin(loaded):
        if not loaded:
            application.exit(1)
        page.runJavaScript(f"run({rounds})", finish)

    page.loadFinished.connect(begin)
    page.load(QUrl.fromLocalFile(str(Path(__file__).with_name("browser.html").resolve())))
    status = application.exec_()
    print(*printed)
    sys.exit(status)


main(int(sys.argv[1]))
