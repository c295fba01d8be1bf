// SPDX-License-Identifier: MIT
pragma solidity 0.8.30;

import {DevUsdc} from "../src/DevUsdc.sol";
import {SettlementGateway} from "../src/SettlementGateway.sol";
import {EventLedger} from "./support/EventLedger.sol";
import {Flaw, GatewayHandler} from "./support/GatewayHandler.sol";
import {ReferenceLedger} from "./support/ReferenceLedger.sol";
import {vm} from "./support/Vm.sol";

/// What is true of the gateway after any sequence of anything: the ten invariants of settlement.
contract InvariantsTest {
    struct FuzzSelector {
        address addr;
        bytes4[] selectors;
    }

    GatewayHandler private handler;
    SettlementGateway private gateway;
    DevUsdc private usdc;
    ReferenceLedger private model;
    EventLedger private events;

    function setUp() public {
        handler = new GatewayHandler();
        (address gatewayAddress, address usdcAddress) = handler.target();
        (gateway, usdc) = (SettlementGateway(gatewayAddress), DevUsdc(usdcAddress));
        (model, events) = (handler.model(), handler.events());
    }

    function targetContracts() public view returns (address[] memory contracts) {
        contracts = new address[](1);
        contracts[0] = address(handler);
    }

    function targetSelectors() public view returns (FuzzSelector[] memory targets) {
        bytes4[] memory selectors = new bytes4[](15);
        selectors[0] = handler.passTime.selector;
        selectors[1] = handler.togglePause.selector;
        selectors[2] = handler.deposit.selector;
        selectors[3] = handler.depositFor.selector;
        selectors[4] = handler.depositWithAuthorization.selector;
        selectors[5] = handler.sendPastTheGateway.selector;
        selectors[6] = handler.settle.selector;
        selectors[7] = handler.signAndCrash.selector;
        selectors[8] = handler.recover.selector;
        selectors[9] = handler.settleAgain.selector;
        selectors[10] = handler.resendLastBatch.selector;
        selectors[11] = handler.initiateWithdrawal.selector;
        selectors[12] = handler.withdraw.selector;
        selectors[13] = handler.instantWithdraw.selector;
        selectors[14] = handler.instantWithdrawAgain.selector;
        targets = new FuzzSelector[](1);
        targets[0] = FuzzSelector(address(handler), selectors);
    }

    /// One walk for nine of them: each is true after every step. What happens here is undone; the seventh changes the chain,
    /// so it is last.
    function invariant_nineAtEveryStep() public {
        _check01_theGatewayHoldsWhatItOwesAndNotAUnitLess();
        _check02_aBatchNeitherMakesNorLosesMoney();
        _check03_aNonceSettlesAtMostOnce();
        _check04_aBalanceFallsOnlyBySignatureOrWithdrawal();
        _check05_batchingChangesNoBalance();
        _check06_everyBatchIsAppliedOnceAndEveryRowOfItAnswered();
        _check08_noFlawEverPasses();
        _check09_theLogAloneRebuildsEveryBalance();
        _check07_whatIsWithdrawingComesOutInFullWhenDue();
    }

    function _check01_theGatewayHoldsWhatItOwesAndNotAUnitLess() private view {
        uint256 owed = 0;
        for (uint256 i = 0; i < handler.peopleCount(); ++i) {
            owed += gateway.totalBalance(address(usdc), handler.person(i));
        }
        vm.assertEq(usdc.balanceOf(address(gateway)), owed + handler.stray(), "the gateway does not hold what it owes");
    }

    function _check02_aBatchNeitherMakesNorLosesMoney() private view {
        vm.assertEq(events.batchSum(), 0, "the changes of the batches do not sum to zero");
    }

    function _check03_aNonceSettlesAtMostOnce() private view {
        for (uint256 i = 0; i < handler.journalLength(); ++i) {
            (address from, bytes32 nonce) = handler.journalRow(i);
            uint256 times = events.timesUsed(from, nonce);
            vm.assertTrue(times <= 1, "a nonce settled twice");
            bool used = gateway.authorizationState(from, nonce);
            vm.assertTrue(used == (times == 1), "a nonce is used that never settled");
        }
    }

    function _check04_aBalanceFallsOnlyBySignatureOrWithdrawal() private view {
        for (uint256 i = 0; i < handler.peopleCount(); ++i) {
            address account = handler.person(i);
            uint256 into = model.deposited(account) + model.paidIn(account);
            uint256 outOf = model.paidOut(account) + model.withdrawn(account);
            vm.assertEq(gateway.totalBalance(address(usdc), account), into - outOf, "money went without a signature");
        }
    }

    function _check05_batchingChangesNoBalance() private view {
        for (uint256 i = 0; i < handler.peopleCount(); ++i) {
            address account = handler.person(i);
            vm.assertEq(gateway.availableBalance(address(usdc), account), model.available(account));
            vm.assertEq(gateway.withdrawingBalance(address(usdc), account), model.withdrawing(account));
        }
    }

    function _check06_everyBatchIsAppliedOnceAndEveryRowOfItAnswered() private view {
        vm.assertEq(gateway.lastBatchId(), handler.batchCount(), "a batch was lost or applied twice");
        vm.assertEq(handler.settledCount() + handler.skippedCount(), handler.rowCount(), "a row has no answer");
    }

    /// Everyone who is withdrawing is paid exactly that when it is due, paused or not.
    function _check07_whatIsWithdrawingComesOutInFullWhenDue() private {
        for (uint256 i = 0; i < handler.peopleCount(); ++i) {
            address account = handler.person(i);
            uint256 value = gateway.withdrawingBalance(address(usdc), account);
            uint256 due = gateway.withdrawalBlock(address(usdc), account);
            vm.assertEq(due, model.withdrawalBlock(account), "the wait is not what was announced");
            if (value == 0) continue;
            uint256 walletBefore = usdc.balanceOf(account);
            vm.roll(due);
            vm.prank(account);
            gateway.withdraw(address(usdc));
            vm.assertEq(usdc.balanceOf(account) - walletBefore, value, "the exit paid another sum");
        }
    }

    function _check08_noFlawEverPasses() private view {
        for (uint256 flaw = 1; flaw <= uint256(type(Flaw).max); ++flaw) {
            vm.assertEq(handler.settledDespite(Flaw(flaw)), 0, "a flawed payment settled");
        }
    }

    function _check09_theLogAloneRebuildsEveryBalance() private view {
        for (uint256 i = 0; i < handler.peopleCount(); ++i) {
            address account = handler.person(i);
            int256 total = int256(gateway.totalBalance(address(usdc), account));
            vm.assertEq(events.balance(account), total, "the log tells another balance");
        }
    }

    /// After crashes at any point, recovery settles what can be settled, once, and then nothing changes any more. This
    /// sends the whole journal again after every step, so it takes fewer steps. What happens here is undone.
    ///
    /// hardhat-config: invariant.runs = 4
    /// hardhat-config: invariant.depth = 48
    function invariant_10_recoveryConverges() public {
        handler.recoverAll();
        uint256 settled = handler.settledCount();
        handler.resendAll();
        vm.assertEq(handler.settledCount(), settled, "a payment was settled again");
        _check01_theGatewayHoldsWhatItOwesAndNotAUnitLess();
        _check03_aNonceSettlesAtMostOnce();
        _check05_batchingChangesNoBalance();
        _check09_theLogAloneRebuildsEveryBalance();
    }
}
