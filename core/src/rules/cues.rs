//! The words that our rules look for: data, read by [`super`].
//!
//! Words of one entry are joined by `_`. `*` at the end: any word that begins so. An entry of Chinese, Japanese or Korean
//! letters is found anywhere in the text, since these scripts set no blanks between words or add endings to them; every
//! other entry only as whole words. No prefix begins another entry's prefix (a test says so): the first found would hide
//! the second.
//!
//! Weight 3 decides alone, weight 2 needs company. Chosen by reading, with the sources of the training prompts in view;
//! words that only mark a source (its templates, its names) were left out.

use crate::catalog::Task;

/// A line of the table: a task, the weight of each of its cues, and the cues.
pub(super) type Line = (Task, u8, &'static str);

pub(super) const CUES: &[Line] = &[
    (
        Task::Code,
        3,
        "python javascript typescript java kotlin golang rust haskell perl php ruby bash sql mysql \
         postgresql postgres sqlite mongodb html css json regex regexp github docker kubernetes numpy \
         pandas dataframe django react nodejs algorithm* compil* stacktrace segfault refactor* debug* \
         codebase pseudocode api jquery linux unix powershell vba hadoop tensorflow pytorch",
    ),
    (
        Task::Code,
        3,
        "stack_trace source_code code_review unit_test unit_tests select_query shell_command \
         shell_script command_line python_function null_pointer linked_list binary_tree hash_map \
         for_loop data_structure pull_request write_code write_a_function write_a_program \
         write_a_script following_code this_code my_code",
    ),
    (
        Task::Code,
        3,
        "编程 代码 程序 函数 算法 爬虫 变量 数据库 数据结构 正则 脚本 编译 接口 源码 编写一个 数组 程式 程式碼 演算法",
    ),
    (Task::Code, 3, "プログラム コード 関数 アルゴリズム コンパイル デバッグ 配列 スクリプト"),
    (Task::Code, 3, "코드 함수 프로그램 알고리즘 프로그래밍 디버깅 컴파일 파이썬"),
    (Task::Code, 3, "programa* código codigo función funcion* algoritm* depurar"),
    (Task::Code, 3, "code* fonction programmation programme débogu*"),
    (Task::Code, 3, "quelltext programmier* funktion* skript kompilier* quellcode"),
    (Task::Code, 3, "função programação"),
    (Task::Code, 3, "код* программ* функци* алгоритм* скрипт* отлад* компил*"),
    (Task::Code, 3, "كود برمج* خوارزمي* دالة البرمج*"),
    (Task::Code, 3, "कोड प्रोग्राम फ़ंक्शन एल्गोरिथ्म"),
    (Task::Code, 3, "kodu fonksiyon* programla*"),
    (Task::Code, 3, "codice funzione programmare"),
    (Task::Code, 3, "koodi mã_nguồn"),
    (
        Task::Code,
        2,
        "code coding function functions bug bugs array arrays string strings integer integers tuple \
         tuples list lists dictionary query queries table tables column columns row rows file files \
         directory directories folder folders class method methods script scripts server http url \
         json xml csv loop loops boolean return returns implement* input output exception parse \
         parser sort sorted element elements substring char chars regex recursive recursion thread \
         threads socket database databases join select insert framework library libraries syntax \
         programming programmer software variable variables git branch commit deploy bytes hash cache \
         async callback iterate iterator stdin stdout path permissions",
    ),
    (Task::Code, 2, "stored_procedure foreign_key primary_key open_source"),
    (Task::Code, 2, "字符串 文件 排序 实现 类 方法 网页 循环 报错 调试"),
    (
        Task::Code,
        2,
        "ファイル 文字列 파일 문자열 fichero archivo archivos cadena fichier chaîne datei zeichenkette arquivo \
         файл* строк* массив* ملف",
    ),
    (
        Task::Math,
        3,
        "theorem* integral* equation* derivative* polynomial* eigenvalue* matrix matrices logarithm* \
         trigonometr* geometry algebra* hypotenuse perimeter circumference quadratic factorial prime \
         divisible remainder solve_for square_root prime_number least_common_multiple \
         greatest_common_divisor how_many_more what_percent simple_interest compound_interest km_hr \
         kmph sq_cm arithmetic fraction* per_hour in_total prove_that",
    ),
    (
        Task::Math,
        3,
        "数学 方程 方程组 几何 三角形 概率 微积分 积分 导数 函数的 求解 计算 证明 等差数列 矩阵 多少千克 多少元 多少米 平方米 一共 圆柱 面积 体积 代数 百分之 分之 千米 \
         千克 比例 双曲线 抛物线 椭圆 数列 向量 坐标",
    ),
    (Task::Math, 3, "方程式 積分 微分 確率 証明 面積 計算 三角形 何円 合計 いくつ"),
    (Task::Math, 3, "방정식 적분 미분 확률 증명 계산 삼각형 모두_몇"),
    (
        Task::Math,
        3,
        "ecuación ecuaciones integral derivada probabilidad teorema matriz triángulo cuántos cuántas",
    ),
    (Task::Math, 3, "équation* intégrale dérivée probabilité calcul* théorème matrice"),
    (Task::Math, 3, "gleichung* integral ableitung wahrscheinlichkeit berechne* beweis* satz_des"),
    (Task::Math, 3, "equação equações derivada probabilidade teorema quantos quantas"),
    (Task::Math, 3, "уравнени* интеграл* производн* вероятност* вычисл* докаж* теорем* сколько треугольник*"),
    (Task::Math, 3, "معادلة معادلات تكامل مشتقة احتمال احسب برهن نظرية"),
    (
        Task::Math,
        3,
        "समीकरण गणना प्रायिकता denklem* integral türev olasılık hesapla* equazion* calcola* \
         phương_trình",
    ),
    (
        Task::Math,
        2,
        "math mathematics maths sum product divide divided multiply multiplied average percent \
         percentage ratio triangle circle rectangle square angle* cost costs price profit discount \
         interest speed km miles meters cm feet dollars cents total twice half each left remaining \
         altogether many much prove proof compute evaluate simplify number numbers volume area radius \
         diameter sequence vector function integer integers digits",
    ),
    (Task::Math, 2, "how_many how_much how_long how_far at_this_rate"),
    (Task::Math, 2, "多少 几个 每个 平均 剩下 还剩 原来 售价 元 箱 米 公式 定理 求 数字 相乘 倍"),
    (
        Task::Reasoning,
        3,
        "premise* deduc* syllogism* logically puzzle* riddle paradox fallac* infer inferred inference \
         can_we_conclude must_be_true must_be_false could_be_true cannot_be_true \
         following_statement_true_or_false is_the_following_statement which_one_of_the_following \
         if_the_statements_above_are_true most_strongly_supported argument_above assumption_on_which \
         weaken_the_argument strengthen_the_argument flaw_in_the_reasoning step_by_step \
         think_carefully truth_teller tells_the_truth always_lies true_or_false does_it_follow \
         logically_follow overall_probability the_probability_of clue clues more_likely \
         counterfactual* entail*",
    ),
    (Task::Reasoning, 3, "推理 推断 逻辑 推出 结论 论证 前提 假设 真话 说谎 谜题 悖论 演绎 归纳 因果"),
    (Task::Reasoning, 3, "推論 論理 結論 前提 パズル なぞなぞ"),
    (Task::Reasoning, 3, "추론 논리 결론 전제 수수께끼"),
    (Task::Reasoning, 3, "lógica premisa* acertijo inferir razonamiento"),
    (Task::Reasoning, 3, "logique déduire énigme prémisse* raisonnement"),
    (Task::Reasoning, 3, "logik* schlussfolger* rätsel prämisse* folgern"),
    (Task::Reasoning, 3, "lógica deduz* premissa* enigma raciocínio"),
    (Task::Reasoning, 3, "логик* логическ* вывод выводы загадк* рассужд* предпосыл*"),
    (Task::Reasoning, 3, "منطق استنتج استنتاج لغز"),
    (Task::Reasoning, 3, "तर्क निष्कर्ष पहेली mantık çıkarım bilmece logica"),
    (
        Task::Reasoning,
        2,
        "reason reasoning reasons conclude conclusion argument statement statements assumption assume \
         true false valid claim claims implies causal causation cause hypothesis trade_off tradeoff* \
         explain_how who_is all_of_the_following except not_all no_one if_and_only_if scientist \
         critic editorial* either neither exactly at_least_one same_day each_of consecutive \
         immediately left_of right_of taller older finished options question",
    ),
    (Task::Reasoning, 2, "如果 那么 是否成立 一定 判断 分析"),
    (
        Task::Creative,
        3,
        "poem poems poetry haiku sonnet limerick lyrics song story stories screenplay fanfic* novel \
         brainstorm* roleplay role_play short_story once_upon_a_time write_a_story write_a_scene \
         main_character plot_twist writing_prompt fictional villain protagonist dialogue monologue \
         rhyme rhyming slogan tagline script worldbuilding",
    ),
    (
        Task::Creative,
        3,
        "诗 诗歌 小说 故事 歌词 剧本 创作 童话 散文 续写 角色扮演 文案 短篇 五言 七言 科幻 情节 標語 歌詞",
    ),
    (Task::Creative, 3, "詩 物語 小説 俳句 歌詞 短歌 創作"),
    (Task::Creative, 3, "시를 소설 이야기 가사 창작 동화"),
    (Task::Creative, 3, "poema poesía cuento historia_corta novela canción guion"),
    (Task::Creative, 3, "poème poésie conte roman chanson scénario"),
    (Task::Creative, 3, "gedicht geschichte märchen roman lied drehbuch"),
    (Task::Creative, 3, "poema poesia conto romance canção roteiro"),
    (Task::Creative, 3, "стих* поэм* рассказ* сказк* роман песн* сценари*"),
    (Task::Creative, 3, "قصيدة قصة رواية شعر أغنية"),
    (Task::Creative, 3, "कविता कहानी गीत şiir hikaye öykü şarkı racconto canzone bài_thơ truyện"),
    (
        Task::Creative,
        2,
        "creative imagine character characters scene fantasy chapter fiction romantic funny title \
         titles names tale narrator wizard magic kingdom hero comedy episode anime villain act_as_a \
         in_the_style_of continue_the keep_going what_happens_next make_up describe",
    ),
    (Task::Creative, 2, "想象 写一 风格 主角 人物 浪漫 描写 场景"),
    (
        Task::Vision,
        3,
        "image images picture pictures photo photos photograph* screenshot* in_the_image \
         in_this_image in_the_photo in_the_picture the_figure this_figure bar_chart line_chart \
         pie_chart this_chart the_chart the_graph the_plot subplot* diagram x_axis y_axis legend \
         infographic illustration painting",
    ),
    (Task::Vision, 3, "图片 图像 照片 图中 这张图 截图 图表 画面 识图 下图 看图 圖片 圖中"),
    (Task::Vision, 3, "画像 写真 図表 スクリーンショット"),
    (Task::Vision, 3, "이미지 사진 그림 스크린샷"),
    (Task::Vision, 3, "imagen imágenes foto fotos captura gráfico"),
    (Task::Vision, 3, "image photo capture_d_écran graphique"),
    (Task::Vision, 3, "bild bilder foto diagramm bildschirmfoto"),
    (Task::Vision, 3, "imagem imagens foto gráfico"),
    (Task::Vision, 3, "изображени* фото* картинк* скриншот* снимк*"),
    (Task::Vision, 3, "صورة الصورة صور"),
    (Task::Vision, 3, "चित्र तस्वीर resim fotoğraf görsel immagine immagini hình_ảnh"),
    (
        Task::Vision,
        2,
        "visible wearing figure chart graph plot axis shown depict* logo on_the_left on_the_right \
         in_the_background in_the_foreground color_is what_color what_colour blurry pixel* caption \
         ocr facing standing sitting holding behind sky shirt man woman dog dogs cat how_many_people \
         who_wrote written are_there is_there screen button icon app",
    ),
    (Task::Vision, 2, "颜色 物体 识别 背景"),
    (
        Task::CheapChat,
        3,
        "hello hi hey hiya thanks thank_you good_morning good_night good_evening good_afternoon \
         how_are_you hows_it_going how_is_it_going whats_up bye goodbye joke jokes lol haha \
         nice_to_meet_you your_name who_are_you are_you_a_robot are_you_human what_are_you \
         flip_a_coin roll_a_dice roll_a_die do_you_like tell_me_a_joke what_time_is_it \
         how_old_are_you who_made_you where_are_you_from yes no ok okay sure yeah nope",
    ),
    (
        Task::CheapChat,
        3,
        "你好 您好 谢谢 再见 早上好 晚安 聊聊 笑话 你是谁 你叫 你喜欢 你会 你恨 哈哈 嗨 你在 你有 你能 你多大 陪我",
    ),
    (Task::CheapChat, 3, "こんにちは ありがとう おはよう こんばんは 元気 さようなら あなた"),
    (Task::CheapChat, 3, "안녕 고마워 반가워 잘_자 너는 당신"),
    (Task::CheapChat, 3, "hola gracias buenos_días adiós buenas_noches qué_tal cómo_estás"),
    (Task::CheapChat, 3, "bonjour salut merci bonsoir ça_va"),
    (Task::CheapChat, 3, "hallo danke tschüss guten_morgen wie_geht"),
    (Task::CheapChat, 3, "olá oi obrigado obrigada tchau tudo_bem"),
    (Task::CheapChat, 3, "привет* спасибо пока как_дела здравствуй*"),
    (Task::CheapChat, 3, "مرحبا شكرا السلام أهلا"),
    (
        Task::CheapChat,
        3,
        "नमस्ते धन्यवाद merhaba teşekkür* selam ciao grazie buongiorno xin_chào cảm_ơn hej tack",
    ),
    (
        Task::CheapChat,
        2,
        "you your yourself u ur me my favorite favourite love please repeat again cool nice great \
         awesome sorry wow robot human alexa siri friend friends",
    ),
];

/// Words by which a speaker names themself or whom they talk to: a short prompt with one is small talk.
pub(super) const PERSONS: &str = "you your yours u me my i im ive id we us thats lets";

/// Words that ask or instruct: a short prompt with one is no small talk, unless a person stands in it.
pub(super) const ASKING: &str = "who whom whose what when where which how why is are was were does did do can list name \
     explain describe define tell give summarize translate";

/// Words that ask for something to be made or known, also where a person stands beside them.
pub(super) const INSTRUCTING: &str = "explain write list summarize translate suggest recommend give how help";

/// The same as [`PERSONS`] in Chinese, Japanese and Korean, with the endings of spoken sentences.
pub(super) const CJK_PERSONS: &[&str] = &["你", "我", "您", "吗", "呢", "吧", "です", "ます", "요", "니"];
